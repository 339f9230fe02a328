"""The gate of l0 regularisation (Louizos et al.): `w -> z * w` with a hard concrete `z`."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from prunus.gates.base import Gate, learned

BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1
"""Temperature of the concrete distribution and the interval it is stretched to."""

_EPS = 1e-6
_SHIFT = BETA * math.log(-GAMMA / ZETA)


class HardConcreteGate(Gate):
    """`z = clamp(sigmoid((logit(u) + log_alpha) / beta) * (zeta - gamma) + gamma, 0, 1)`.

    In training mode `u ~ U(0, 1)` is drawn anew whenever the network asks for the weight. In
    evaluation mode, and as a mask before a round commits, the gate is deterministic: the original's
    test-time rule `clamp(sigmoid(log_alpha) * (zeta - gamma) + gamma, 0, 1)`. `committed` holds the
    `z` that a round committed to, beside the round's mask `z > 0`.
    """

    committed: Tensor

    def __init__(self, weight: Tensor, keep_init: float) -> None:
        super().__init__()
        self.log_alpha = learned(weight, math.log(keep_init) - math.log1p(-keep_init))
        self.register_buffer("committed", torch.ones_like(self.log_alpha).detach())

    def soft(self, w: Tensor) -> Tensor:
        if not self.training:
            return (self.expected() * w).to(w.dtype)
        noise = torch.rand_like(self.log_alpha).logit_(_EPS)
        return _hard_concrete(w, self.log_alpha, noise).to(w.dtype)

    def soft_mask(self) -> Tensor:
        """`P(z > 0) = sigmoid(log_alpha - beta * log(-gamma / zeta))`, of which l0 is the sum."""
        return torch.sigmoid(self.log_alpha - _SHIFT)

    def expected(self) -> Tensor:
        """`z` by the original's test-time rule."""
        return _stretch(torch.sigmoid(self.log_alpha))

    def sample(self, generator: torch.Generator) -> Tensor:
        """`z` from a generator on the CPU: the same in every process."""
        a = self.log_alpha.detach()
        noise = torch.rand(a.shape, generator=generator, dtype=a.dtype).logit_(_EPS)
        return _stretch(noise.to(a.device).add_(a).div_(BETA).sigmoid_())

    def decide(self) -> Tensor:
        return self.expected() > 0

    def effective(self, w: Tensor) -> Tensor:
        z = self.expected() if self.round_mask is None else self.committed
        return (z * w).to(w.dtype)

    def fold(self, w: Tensor) -> None:
        w.copy_(self.effective(w))
        self.unscale()

    def unscale(self) -> None:
        self.committed.fill_(1.0)


class _HardConcrete(torch.autograd.Function):
    """`z * w` for given `logit(u)`; saves one tensor beside its inputs."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, log_alpha: Tensor, noise: Tensor) -> Tensor:
        s = torch.add(noise, log_alpha).div_(BETA).sigmoid_()
        ctx.save_for_backward(w, s)
        return _stretch(s).mul_(w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        w, s = ctx.saved_tensors
        z = _stretch(s)
        grad_w = grad_a = None
        if ctx.needs_input_grad[1]:
            # dz/dlog_alpha = (zeta - gamma) / beta * s * (1 - s) where z is not clamped
            free = (z - z * z).sign_()  # 1 where 0 < z < 1, else 0; faster than with booleans
            grad_s = free.mul_(g).mul_(w).mul_((ZETA - GAMMA) / BETA)
            grad_a = torch.ops.aten.sigmoid_backward(grad_s, s)
        if ctx.needs_input_grad[0]:
            grad_w = (z * g).to(w.dtype)
        return grad_w, grad_a, None


def _hard_concrete(w: Tensor, log_alpha: Tensor, noise: Tensor) -> Tensor:
    return cast(Tensor, _HardConcrete.apply(w, log_alpha, noise))  # type: ignore[no-untyped-call]


def _stretch(s: Tensor) -> Tensor:
    return (s * (ZETA - GAMMA) + GAMMA).clamp(0, 1)
