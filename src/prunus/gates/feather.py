"""The gate of Feather: a threshold between soft and hard, and a gradient for what is below it."""

from __future__ import annotations

import torch
from torch import Tensor

from prunus.gates.base import Gate, masked
from prunus.gates.straight_through import straight_through

POWER = 3
"""`p`: 1 is the soft threshold, infinity the hard one."""


class FeatherGate(Gate):
    """`w -> sign(w) * (|w|^p - tau^p)^(1/p)` for `|w| > tau`, else 0, with `p = 3`.

    The backward pass goes straight through: `dL/dw = g` for kept weights, `theta * g` for others.
    The method sets the threshold `tau` and the mask `kept` with `choose`.
    """

    threshold: Tensor
    kept: Tensor

    def __init__(self, weight: Tensor, theta: float) -> None:
        super().__init__()
        self.theta = theta
        self.register_buffer("threshold", torch.zeros((), dtype=weight.dtype, device=weight.device))
        self.register_buffer("kept", torch.ones_like(weight, dtype=torch.bool))

    def choose(self, kept: Tensor, threshold: Tensor) -> None:
        """From now on, compute with this mask and this threshold."""
        self.kept.copy_(kept)
        self.threshold.copy_(threshold)

    def soft(self, w: Tensor) -> Tensor:
        scaled = w if self.theta == 1.0 else torch.where(self.kept, w, self.theta * w)
        return straight_through(masked(self._shrunk(w), self.kept), scaled)

    def decide(self) -> Tensor:
        return self.kept

    def effective(self, w: Tensor) -> Tensor:
        return straight_through(self._shrunk(w), w)

    def fold(self, w: Tensor) -> None:
        w.copy_(self._shrunk(w))
        self.unscale()

    def unscale(self) -> None:
        self.threshold.zero_()

    def _shrunk(self, w: Tensor) -> Tensor:
        """The shrunk weight; with a threshold of zero, the weight itself to the last bit."""
        w = w.detach()
        rest = (w.abs().pow(POWER) - self.threshold.pow(POWER)).clamp(min=0)
        return torch.where(self.threshold > 0, w.sign() * rest.pow(1 / POWER), w)
