"""What the gates of a model are doing, at any moment of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from prunus.gates import Gate, whole
from prunus.tables import percent, text_table

TRANSITION = 0.01
"""A gate is in transition while its soft value is further than this from its binary one."""


@dataclass(frozen=True)
class LayerStatistics:
    """The gates of one parameter. All densities count weights, not gates."""

    name: str
    shape: tuple[int, ...]
    weights: int
    kept: int
    soft_density: float
    in_transition: float

    @property
    def hard_density(self) -> float:
        """Fraction of weights that the binary mask keeps."""
        return self.kept / self.weights if self.weights else 0.0

    @property
    def in_transition_per_kept(self) -> float:
        """Gates in transition for each weight that is kept, counted in weights."""
        return self.in_transition * self.weights / max(1, self.kept)


@dataclass(frozen=True)
class Statistics:
    """Soft density, hard density and gates in transition: in all, and per layer."""

    layers: tuple[LayerStatistics, ...]
    parameters: int
    """Of the whole network, those without gates too."""

    @property
    def weights(self) -> int:
        """Number of weights under gates."""
        return sum(layer.weights for layer in self.layers)

    @property
    def kept(self) -> int:
        """Number of weights that the binary mask keeps."""
        return sum(layer.kept for layer in self.layers)

    @property
    def hard_density(self) -> float:
        """Fraction of weights that the binary mask `H(s)` keeps: the density that counts."""
        return self.kept / self.weights if self.weights else 0.0

    @property
    def network_density(self) -> float:
        """The same of all parameters of the network."""
        removed = self.weights - self.kept
        return 1 - removed / self.parameters if self.parameters else 0.0

    @property
    def soft_density(self) -> float:
        """Mean of the soft gates, `mean(sigmoid(beta*s))` for CS."""
        return self._mean("soft_density")

    @property
    def in_transition(self) -> float:
        """Fraction of weights whose gate is not yet within 0.01 of zero or one."""
        return self._mean("in_transition")

    @property
    def in_transition_per_kept(self) -> float:
        """The same for each kept weight: where few are kept, a small fraction of all is many."""
        return self.in_transition * self.weights / max(1, self.kept)

    def _mean(self, field: str) -> float:
        total = sum(getattr(layer, field) * layer.weights for layer in self.layers)
        return float(total / self.weights) if self.weights else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for logs and JSON."""
        summary = {
            "weights": self.weights,
            "kept": self.kept,
            "parameters": self.parameters,
            "hard_density": self.hard_density,
            "network_density": self.network_density,
            "soft_density": self.soft_density,
            "in_transition": self.in_transition,
            "in_transition_per_kept": self.in_transition_per_kept,
        }
        derived = ("hard_density", "in_transition_per_kept")
        layers = [
            {**asdict(layer), **{name: getattr(layer, name) for name in derived}}
            for layer in self.layers
        ]
        return {**summary, "layers": layers}

    def __str__(self) -> str:
        def row(name: str, shape: str, of: LayerStatistics | Statistics) -> list[str]:
            fractions = (
                of.hard_density,
                of.soft_density,
                of.in_transition,
                of.in_transition_per_kept,
            )
            return [name, shape, f"{of.kept:,}", f"{of.weights:,}", *map(percent, fractions)]

        rows = [row(n.name, "x".join(map(str, n.shape)), n) for n in self.layers]
        header = ["parameter", "shape", "kept", "weights", "hard", "soft"]
        header += ["in transition", "per kept"]
        left = self.parameters - self.weights + self.kept
        network = ["network", "", f"{left:,}", f"{self.parameters:,}"]
        network += [percent(self.network_density), "", "", ""]
        return text_table(header, [*rows, row("total", "", self), network])


def statistics(gates: Mapping[str, Gate], parameters: int) -> Statistics:
    """Measure gates by parameter name, in a network of so many `parameters`."""
    return Statistics(tuple(_measure(name, gate) for name, gate in gates.items()), parameters)


@torch.no_grad()
def _measure(name: str, gate: Gate) -> LayerStatistics:
    mask = whole(gate.mask())
    binary = gate.hard or gate.round_mask is not None  # fixed, or between two rounds
    soft = mask.float() if binary else whole(gate.soft_mask())
    distance = torch.minimum(soft, 1 - soft)
    return LayerStatistics(
        name=name,
        shape=tuple(mask.shape),
        weights=mask.numel(),
        kept=int(mask.sum()),
        soft_density=float(soft.mean()),
        in_transition=float((distance > TRANSITION).double().mean()),
    )
