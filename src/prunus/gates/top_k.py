"""The gate of DNW: the largest weights are used, and all of them learn."""

from __future__ import annotations

import torch
from torch import Tensor

from prunus.gates.base import Gate, masked
from prunus.gates.straight_through import straight_through


class TopKGate(Gate):
    """`w -> m * w` with a mask `top` that the method chooses; `dL/dw = g`, also where `m` is 0."""

    top: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("top", torch.ones_like(weight, dtype=torch.bool))

    def soft(self, w: Tensor) -> Tensor:
        return straight_through(masked(w.detach(), self.top), w)

    def decide(self) -> Tensor:
        return self.top
