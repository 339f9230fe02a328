"""The gate of network slimming, weight by weight: `w -> g * w` with a learned factor `g`."""

from __future__ import annotations

import torch
from torch import Tensor

from prunus.gates.base import Gate, learned


class ScalingGate(Gate):
    """A scaling factor `g` for every weight. It removes nothing by itself: the method does."""

    def __init__(self, weight: Tensor, scaling_init: float) -> None:
        super().__init__()
        self.scaling = learned(weight, scaling_init)

    def soft(self, w: Tensor) -> Tensor:
        return (self.scaling * w).to(w.dtype)

    def effective(self, w: Tensor) -> Tensor:
        return self.soft(w)

    def decide(self) -> Tensor:
        return torch.ones_like(self.scaling, dtype=torch.bool)

    def fold(self, w: Tensor) -> None:
        w.copy_(self.effective(w))
        self.unscale()

    def unscale(self) -> None:
        with torch.no_grad():
            self.scaling.fill_(1.0)
