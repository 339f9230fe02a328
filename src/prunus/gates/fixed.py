"""The gate of a ticket and of magnitude pruning: a mask that is not learned."""

from __future__ import annotations

import torch
from torch import Tensor

from prunus.gates.base import Gate, masked


class FixedGate(Gate):
    """`w -> m * w` with a constant binary mask `m`; removed weights get no gradient."""

    fixed_mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("fixed_mask", mask.to(torch.bool))

    def soft(self, w: Tensor) -> Tensor:
        return masked(w, self.fixed_mask)

    def decide(self) -> Tensor:
        return self.fixed_mask
