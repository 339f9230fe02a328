"""The gate of stochastic sparsification: `w -> m * w` with `m ~ Bernoulli(sigmoid(s))`."""

from __future__ import annotations

import torch
from torch import Tensor

from prunus.errors import SettingError
from prunus.gates.base import Gate, learned, masked
from prunus.gates.straight_through import straight_through


class BernoulliGate(Gate):
    """In training mode, a mask that is drawn anew whenever the network asks for the weight.

    The backward pass treats the sample as `sigmoid(s)` itself: `dL/dm` goes straight through to it,
    so `dL/ds = dL/dm * sigmoid'(s)`, and `dL/dw = m * g`. In evaluation mode, and as a binary mask,
    the gate is its most probable sample: `s > 0`. A score of minus infinity removes a weight for
    good: its probability, its gradient and its share of the penalty are exactly zero.

    `velocity` is the momentum of the score, for the method that updates it.
    """

    velocity: Tensor

    def __init__(self, weight: Tensor, mask_init: float) -> None:
        super().__init__()
        self.score = learned(weight, mask_init)
        self.register_buffer("velocity", torch.zeros_like(self.score).detach())

    def soft(self, w: Tensor) -> Tensor:
        if not self.training:
            return masked(w, self.decide())
        _refuse_loss_scaling(w.device.type)
        p = self.soft_mask()
        m = (p.detach() - torch.rand_like(p)).ceil()  # 1 where u < p, else 0; u is below 1
        return (straight_through(m, p) * w).to(w.dtype)

    def soft_mask(self) -> Tensor:
        """`sigmoid(s)`: how probable it is that each weight is kept."""
        return torch.sigmoid(self.score)

    def decide(self) -> Tensor:
        return self.score > 0

    def sample(self, generator: torch.Generator) -> Tensor:
        """`m ~ Bernoulli(sigmoid(s))` from a generator on the CPU: the same in every process."""
        s = self.score.detach()
        u = torch.rand(s.shape, generator=generator, dtype=s.dtype).to(s.device)
        return u < torch.sigmoid(s)


def _refuse_loss_scaling(device: str) -> None:
    # The method updates the scores itself, and does not know what the loss was scaled by.
    if torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.float16:
        raise SettingError(
            "iss cannot be trained with float16: it takes the gradients of its scores as they are, "
            "and float16 training scales them; use bfloat16 (engine.precision=bf16) or float32"
        )
