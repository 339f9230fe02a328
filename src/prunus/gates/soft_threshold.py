"""The gate of soft threshold reparameterisation: `w -> sign(w) * relu(|w| - sigmoid(s))`."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from prunus.gates.base import Gate, wide


class SoftThresholdGate(Gate):
    """One learned threshold `sigmoid(s)` for a whole tensor; the mask is `|w| > sigmoid(s)`.

    `survivors` is that mask as `observe` last saw it.
    """

    survivors: Tensor

    def __init__(self, weight: Tensor, s_init: float) -> None:
        super().__init__()
        start = torch.full((), s_init, dtype=wide(weight.dtype), device=weight.device)
        self.score = nn.Parameter(start)
        self.register_buffer("survivors", torch.ones_like(weight, dtype=torch.bool))

    @property
    def threshold(self) -> Tensor:
        """`sigmoid(s)`."""
        return torch.sigmoid(self.score)

    def soft(self, w: Tensor) -> Tensor:
        return _soft_threshold(w, self.threshold).to(w.dtype)

    def effective(self, w: Tensor) -> Tensor:
        # With a threshold of zero, the weight itself: the soft threshold has no gradient at w = 0.
        return torch.where(self.score.isneginf(), w, self.soft(w))

    def observe(self, w: Tensor) -> None:
        """Bring the mask up to date with the weight."""
        with torch.no_grad():
            self.survivors.copy_(w.abs() > self.threshold)

    def decide(self) -> Tensor:
        return self.survivors

    def fold(self, w: Tensor) -> None:
        w.copy_(self.effective(w))
        self.unscale()

    def unscale(self) -> None:
        with torch.no_grad():
            self.score.fill_(-torch.inf)  # a threshold of exactly zero


class _SoftThreshold(torch.autograd.Function):
    """Saves its output only, which lives anyway: the layer that computes with it has saved it."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, threshold: Tensor) -> Tensor:
        out = w - torch.minimum(torch.maximum(w, -threshold), threshold)
        ctx.save_for_backward(out)
        ctx.dtype = w.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None]:
        (out,) = ctx.saved_tensors
        sign = out.sign()  # zero where the weight is removed
        signed = g * sign
        grad_t = -signed.sum() if ctx.needs_input_grad[1] else None
        return signed.mul_(sign).to(ctx.dtype), grad_t


def _soft_threshold(w: Tensor, threshold: Tensor) -> Tensor:
    return cast(Tensor, _SoftThreshold.apply(w, threshold))  # type: ignore[no-untyped-call]
