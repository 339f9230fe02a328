"""The gate of SNIP: a mask that is not learned, and the gradient of the loss with respect to it."""

from __future__ import annotations

import torch
from torch import Tensor

from prunus.gates.base import masked
from prunus.gates.fixed import FixedGate


class SalientGate(FixedGate):
    """`w -> m * w`, and on request `dL/dm = g * w` of every weight."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__(torch.ones_like(weight, dtype=torch.bool))
        self._ones: Tensor | None = None

    def soft(self, w: Tensor) -> Tensor:
        return masked(w if self._ones is None else w * self._ones, self.fixed_mask)

    def listen(self, w: Tensor | None) -> None:
        """Start collecting the gradients of the mask of `w`, anew; with None, stop."""
        self._ones = None if w is None else torch.ones_like(w).detach().requires_grad_()

    @property
    def sensitivity(self) -> Tensor | None:
        """`g * w`, summed over backward passes; None if there was none."""
        return None if self._ones is None else self._ones.grad
