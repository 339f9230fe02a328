"""The gate of RigL: a mask that is not learned, and the gradient of what it removes."""

from __future__ import annotations

import torch
from torch import Tensor

from prunus.gates.base import Gate, masked


class GrowingGate(Gate):
    """`w -> m * w`, and on request the gradient with respect to every weight, removed or not."""

    present: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("present", torch.ones_like(weight, dtype=torch.bool))
        self._probe: Tensor | None = None

    def soft(self, w: Tensor) -> Tensor:
        gated = masked(w, self.present)
        # Adding zero changes nothing but this: the zero gets the gradient of every weight.
        return gated if self._probe is None else gated + self._probe

    def decide(self) -> Tensor:
        return self.present

    def listen(self, w: Tensor | None) -> None:
        """Start collecting the gradient with respect to all of `w`; with None, stop."""
        self._probe = None if w is None else torch.zeros_like(w).detach().requires_grad_()

    @property
    def dense_gradient(self) -> Tensor | None:
        """What was collected, summed over backward passes; None if there was no backward pass."""
        return None if self._probe is None else self._probe.grad

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Also forget what was collected."""
        super().zero_grad(set_to_none)
        if self._probe is not None:
            self._probe.grad = None
