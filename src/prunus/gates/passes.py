"""The forward and the backward pass of the gate of Continuous Sparsification."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from prunus.gates import native

if TYPE_CHECKING:
    from prunus.gates.sigmoid import SigmoidGate

CLOSED = 1e-17
"""A soft gate below this is zero. After a round, scores are so large that gates would be denormal
numbers, with which CPUs compute convolutions thirty times more slowly."""

Pass = tuple[float, bool, "SigmoidGate"]
"""Of one gate: its factor, whether it is penalised, and itself."""


class SigmoidGates(torch.autograd.Function):
    """`c * sigmoid(beta*s) * w` and `||sigmoid(beta*s)||_1` of each gate, in one pass each way.

    Keeps nothing but its inputs (`w`, `s` and `beta` of each), which live anyway; the backward pass
    computes the soft masks again.
    """

    @staticmethod
    def forward(ctx: Any, settings: list[Pass], *tensors: Tensor) -> Any:
        # Not `save_for_backward`: if losses have gates in common, there are several backward
        # passes, and checkpointing counts what is saved, together or alone.
        ctx.settings, ctx.tensors = settings, tensors
        ctx.versions = [tensor._version for tensor in tensors]
        ctx.set_materialize_grads(False)
        columns = (tensors[::3], tensors[1::3], tensors[2::3])
        rows = zip(*columns, settings, strict=True)
        return tuple(
            chain.from_iterable(_forward(w, s, beta, *row[:2]) for w, s, beta, row in rows)
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        tensors, needed = ctx.tensors, ctx.needs_input_grad
        if [tensor._version for tensor in tensors] != ctx.versions:
            raise RuntimeError(
                "a weight, score or temperature under a gate was modified by an inplace operation "
                "between the forward and the backward pass"
            )
        found: list[Tensor | None] = [None]
        for i, (scale, _, gate) in enumerate(ctx.settings):
            w, s, beta = tensors[3 * i : 3 * i + 3]
            g, g_l1 = gradients[2 * i : 2 * i + 2]
            grad_w = grad_s = None
            if g is not None or g_l1 is not None:
                grad_w, grad_s, pull = _backward(
                    w, s, beta, g, g_l1, scale, needed[3 * i + 1 : 3 * i + 3], gate.learns_size
                )
                if pull is not None:
                    gate.feel(pull)
            found += grad_w, grad_s, None
        return tuple(found)


def _forward(
    w: Tensor, s: Tensor, beta: Tensor, scale: float, penalised: bool
) -> tuple[Tensor, Tensor]:
    if native.takes(w, s):
        gated, total = native.forward(w, s, beta, scale, CLOSED)
        return gated, torch.scalar_tensor(total, dtype=s.dtype)
    m = soft_mask_of(s, beta)
    l1 = m.sum() * (w.numel() // max(1, s.numel())) if penalised else m.new_zeros(())
    return _product(m, w, scale), l1


def _backward(
    w: Tensor,
    s: Tensor,
    beta: Tensor,
    g: Tensor | None,
    g_l1: Tensor | None,
    scale: float,
    needed: tuple[bool, bool],
    learns_size: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of `w` and `s`, in two new buffers; and of the logarithm of the factor.

    The last in the precision of `beta`: under mixed precision of `fully_shard`, `s` has 16 bits.
    """
    if g is None:  # of the sum alone
        g = torch.zeros_like(w)
    if all(needed) and native.takes(w, s):
        g_sum = 0.0 if g_l1 is None else g_l1.item()
        of_w, of_s, total = native.backward(w, s, beta, g, g_sum, scale, CLOSED)
        return of_w, of_s, torch.scalar_tensor(total, dtype=beta.dtype) if learns_size else None
    m = soft_mask_of(s, beta)
    grad_w: Tensor | None = None
    grad_s: Tensor | None = None
    pull: Tensor | None = None
    if needed[1]:
        # dL/ds = beta * m * (1 - m) * (c * g * w + dL/dl1), summed over what shares the gate
        of_sum = g.new_zeros(()) if g_l1 is None else g_l1.to(g.dtype)
        grad_m = torch.addcmul(of_sum, g, w, value=scale).sum_to_size(s.shape)
        sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
        grad_s = sigmoid_backward(grad_m, m, grad_input=grad_m).mul_(beta)
    if needed[0] or learns_size:
        grad_w = _product(m, g, scale)  # dL/dw = c * m * g; overwrites m
        if learns_size:
            pull = (grad_w * w).sum(dtype=beta.dtype)
    return grad_w if needed[0] else None, grad_s, pull


class L1(torch.autograd.Function):
    """`||sigmoid(beta*s)||_1` alone, in one pass each way."""

    @staticmethod
    def forward(ctx: Any, s: Tensor, beta: Tensor) -> Tensor:
        ctx.save_for_backward(s, beta)
        return torch.tensor(native.l1(s, beta, CLOSED), dtype=s.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        s, beta = ctx.saved_tensors
        return native.l1_backward(s, beta, g.item(), CLOSED), None


def closed(mask: Tensor) -> Tensor:
    return torch.threshold(mask, CLOSED, 0.0)


def soft_mask_of(s: Tensor, beta: Tensor) -> Tensor:
    return torch.threshold_(torch.mul(s, beta).sigmoid_(), CLOSED, 0.0)


def _product(m: Tensor, x: Tensor, scale: float) -> Tensor:
    """`scale * m * x` in one pass, in the memory of `m` where the shapes allow."""
    out = m if m.shape == x.shape else None
    return torch.addcmul(m.new_zeros(()), m, x, value=scale, out=out)
