"""How much a kept weight counts, learned with the mask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from prunus.gates import SigmoidGate
from prunus.methods.common.processes import sum_over_processes

_RATE = 8.0
"""How far the exponent can go in a round, if all gates were open and all pulls one way."""


def matters(model: nn.Module) -> bool:
    """Whether the network computes something else if its weights are larger.

    BatchNorm takes any factor out again, with its effect on rates.
    """
    return not any(isinstance(module, _BatchNorm) for module in model.modules())


@dataclass
class LearnedSize:
    """One number for the network, from 1 to 2.

    Gates open from 1/2 to 1, which would make kept weights twice as large. By how much they really
    grow is up to the loss: with `o = 2*sigmoid(beta*z)`, from 1 to 2, and `S = dL/dlog(size)`,

        size = o ** a,   a <- a - 8/T * log2(o) * S / rms(S),   0 <= a <= 1,   a = 1 at first.
    """

    exponent: float = 1.0
    """`a`."""
    opening: float = 1.0
    """`o`."""
    squares: float = 0.0
    """Of `S`, summed with the weights `log2(o)`."""
    weights: float = 0.0

    def learn(self, gates: Sequence[SigmoidGate], steps: int) -> None:
        """Take one step of a round of so many; call it in every process."""
        pulls = [gate.take_pull() for gate in gates]
        summed = torch.stack([each.to(pulls[0].device) for each in pulls]).sum()
        pull, weight = float(sum_over_processes(summed)), math.log2(self.opening)
        if not weight or not math.isfinite(pull):
            return
        self.weights += weight
        self.squares += weight * pull**2
        if self.squares:
            step = _RATE / steps * weight * pull / math.sqrt(self.squares / self.weights)
            self.exponent = min(1.0, max(0.0, self.exponent - step))

    def now(self, u: float) -> float:
        """For a median gate above the threshold of `sigmoid(u)`."""
        self.opening = 2 / (1 + math.exp(-u))
        return float(self.opening**self.exponent)

    def state_dict(self) -> dict[str, Any]:
        """All there is to know."""
        return {"size": asdict(self)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take it from `state`."""
        for name, value in {**asdict(LearnedSize()), **state.get("size", {})}.items():
            setattr(self, name, value)
