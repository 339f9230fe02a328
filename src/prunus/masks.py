"""The mask: which weights of a network are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prunus.errors import MaskError
from prunus.gates import FixedGate, attach, check_attachable, gated_parameters, mark_saved, whole
from prunus.selection import Candidate, candidates, check_gateable
from prunus.tables import percent, printable, text_table

# A small ticket can have many layers, and one long name makes the whole table wide.
_MOST_SHOWN = 1000
_WIDEST = 100


@dataclass(frozen=True)
class LayerDensity:
    """How much of one parameter a mask keeps."""

    name: str
    shape: tuple[int, ...]
    kept: int
    total: int

    @property
    def density(self) -> float:
        """The kept fraction of this parameter's weights."""
        return self.kept / self.total if self.total else 0.0


class Mask(Mapping[str, Tensor]):
    """Binary mask `m`: a bool tensor for each sparsified parameter, by its name.

    An immutable value: it copies what it is given and gives out copies, lives on the CPU, compares
    by content and can be hashed. Densities count only the weights that it covers.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if tensor.dtype != torch.bool:
                raise MaskError(f"the mask of {name} is {tensor.dtype}, not torch.bool")
        self._tensors = {
            name: whole(tensor.detach()).to("cpu", copy=True).contiguous()
            for name, tensor in tensors.items()
        }

    @classmethod
    def of(cls, model: nn.Module) -> Mask:
        """The masks that the gates on `model` stand for now."""
        gates = gated_parameters(model)
        if not gates:
            raise MaskError("the model carries no gates: attach a method or apply a mask first")
        return cls({name: gate.mask() for name, (gate, _) in gates.items()})

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name].clone()

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mask):
            return NotImplemented
        return self._tensors.keys() == other._tensors.keys() and all(
            torch.equal(tensor, other._tensors[name]) for name, tensor in self._tensors.items()
        )

    def __hash__(self) -> int:
        digest = hashlib.sha256()
        for name in sorted(self._tensors):
            tensor = self._tensors[name]
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(tensor.numpy().tobytes())
        return int.from_bytes(digest.digest()[:8], "big")

    # Statistics

    @property
    def kept(self) -> int:
        """How many weights the mask keeps."""
        return sum(int(tensor.sum()) for tensor in self._tensors.values())

    @property
    def total(self) -> int:
        """How many weights are under the mask."""
        return sum(tensor.numel() for tensor in self._tensors.values())

    @property
    def density(self) -> float:
        """The kept fraction of the weights under the mask."""
        return self.kept / self.total if self.total else 0.0

    @property
    def sparsity(self) -> float:
        """The removed fraction of the weights under the mask."""
        return 1.0 - self.density

    @property
    def layers(self) -> tuple[LayerDensity, ...]:
        """Statistics of every parameter, in the model's order."""
        return tuple(
            LayerDensity(name, tuple(tensor.shape), int(tensor.sum()), tensor.numel())
            for name, tensor in self._tensors.items()
        )

    def __repr__(self) -> str:
        return f"<Mask of {len(self)} tensors, keeps {self.kept:,} of {self.total:,} weights>"

    def __str__(self) -> str:
        rows = [
            [
                printable(n.name, _WIDEST),
                "x".join(map(str, n.shape)),
                f"{n.kept:,}",
                f"{n.total:,}",
                percent(n.density),
            ]
            for n in self.layers[:_MOST_SHOWN]
        ]
        if len(self.layers) > _MOST_SHOWN:
            rows.append([f"... and {len(self.layers) - _MOST_SHOWN:,} more", "", "", "", ""])
        rows.append(["total", "", f"{self.kept:,}", f"{self.total:,}", percent(self.density)])
        return text_table(["parameter", "shape", "kept", "weights", "density"], rows)

    # Set operations

    def __or__(self, other: Mask) -> Mask:
        """Kept by either."""
        return self._combine(other, torch.logical_or)

    def __and__(self, other: Mask) -> Mask:
        """Kept by both."""
        return self._combine(other, torch.logical_and)

    def __sub__(self, other: Mask) -> Mask:
        """Kept by this one and not by the other."""
        return self._combine(other, lambda a, b: a & ~b)

    union = __or__
    intersection = __and__
    difference = __sub__

    def jaccard(self, other: Mask) -> float:
        """Overlap: weights kept by both, divided by those kept by either; 1 for two empty masks."""
        either = (self | other).kept
        return (self & other).kept / either if either else 1.0

    def _combine(self, other: Mask, operation: Callable[[Tensor, Tensor], Tensor]) -> Mask:
        self._check_fits(other._tensors, "other mask")
        extra = next((name for name in other._tensors if name not in self._tensors), None)
        if extra is not None:
            raise MaskError(f"the other mask has {extra}, which this mask does not cover")
        return Mask({n: operation(t, other._tensors[n]) for n, t in self._tensors.items()})

    def _check_fits(self, tensors: Mapping[str, Tensor], what: str) -> None:
        for name, mask in self._tensors.items():
            if name not in tensors:
                raise MaskError(f"the {what} has no parameter {name}, which this mask covers")
            here, there = tuple(mask.shape), tuple(tensors[name].shape)
            if here != there:
                raise MaskError(f"{name} is {here} in this mask but {there} in the {what}")

    # Controls

    def shuffled(self, seed: int) -> Mask:
        """A random mask with the same density in every layer."""
        generator = torch.Generator().manual_seed(seed)
        return Mask(
            {n.name: drawn_flags(n.kept, n.total, generator).view(n.shape) for n in self.layers}
        )

    def random(self, seed: int) -> Mask:
        """A random mask with the same total density, uniform over all weights."""
        generator = torch.Generator().manual_seed(seed)
        flat = drawn_flags(self.kept, self.total, generator)
        parts = flat.split([layer.total for layer in self.layers])
        return Mask({n.name: p.view(n.shape) for n, p in zip(self.layers, parts, strict=True)})

    def largest(self, weights: Mapping[str, Tensor]) -> Mask:
        """The mask of the largest weights of every layer, with the same density there."""
        self._check_fits(weights, "set of weights")
        found = {}
        for layer in self.layers:
            order = weights[layer.name].detach().flatten().abs().argsort(descending=True)
            kept = torch.zeros(layer.total, dtype=torch.bool)
            kept[order[: layer.kept].cpu()] = True
            found[layer.name] = kept.view(layer.shape)
        return Mask(found)

    # Use

    def apply(self, model: nn.Module) -> nn.Module:
        """Put the mask on `model`, in place: removed weights compute as zero and stay so.

        The kept weights can be trained with any optimiser, momentum and weight decay.
        `prunus.strip(model)` makes the zeros permanent and leaves plain modules.
        """
        covered = self.covered(model)
        for candidate in covered:
            mask = self._tensors[candidate.name]
            attach(candidate, FixedGate(mask.to(candidate.parameter.device, copy=True)))
        mark_saved(model, covered)
        return model

    def covered(self, model: nn.Module) -> list[Candidate]:
        """The parameters of `model` under this mask, or an error if it does not fit the model."""
        check_attachable(model)
        found = {c.name: c for c in candidates(model)}
        self._check_fits({name: c.parameter for name, c in found.items()}, "model")
        covered = [found[name] for name in self._tensors]
        for candidate in covered:
            check_gateable(candidate)
        return covered


def drawn_flags(kept: int, total: int, generator: torch.Generator) -> Tensor:
    """`total` flags, of which `kept` are true, drawn at random."""
    mask = torch.zeros(total, dtype=torch.bool)
    mask[torch.randperm(total, generator=generator)[:kept]] = True
    return mask
