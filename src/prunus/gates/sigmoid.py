"""The gate of Continuous Sparsification: `w -> c * sigmoid(beta * s) * w`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from prunus.gates import native
from prunus.gates.base import Gate
from prunus.gates.granularity import Layout
from prunus.gates.sharded import is_sharded, local, summed_up

CLOSED = 1e-17
"""A soft gate below this is zero. After a round, scores are so large that gates would be denormal
numbers, with which CPUs compute convolutions thirty times more slowly."""


class SigmoidGate(Gate):
    """A soft gate with a learned score `s`, hardened by raising its temperature `beta`.

    The score is float32 (or wider, if the weight is) and has the layout's shape; `scale` is the
    factor `c`. The temperature is a buffer: changing it recompiles nothing, `state_dict` has it.
    So is `settling`, a factor of the soft gate alone that falls to 1, if there is one.
    """

    temperature: Tensor
    settling: Tensor | None

    def __init__(
        self,
        weight: Tensor,
        layout: Layout,
        mask_init: float,
        scale: float,
        penalised: bool,
        settles: bool = False,
    ) -> None:
        super().__init__()
        self.layout = layout
        self.scale = scale
        self.penalised = penalised
        dtype = torch.promote_types(weight.dtype, torch.float32)
        if layout.score == layout.weight:  # full_like keeps the memory format
            score = torch.full_like(weight, mask_init, dtype=dtype)
        else:
            score = torch.full(layout.score, mask_init, dtype=dtype, device=weight.device)
        self.score = nn.Parameter(score.detach())
        self.register_buffer("temperature", torch.ones((), dtype=dtype, device=weight.device))
        self.register_buffer("settling", 2 * torch.ones_like(self.temperature) if settles else None)
        self.made: Tensor | None = None
        """The gated weight, during a forward pass that made it with others (`together.py`)."""
        self._forward_l1: tuple[Tensor, tuple[int, int], bool] | None = None

    def soft(self, w: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # which fuses by itself, and breaks at `out=`
            m = self.soft_mask()
            scale = self.scale if self.settling is None else self.settling
            gated = scale * m * w.view(self.layout.view)
            if self.penalised and torch.is_grad_enabled():
                self._keep_l1(m.sum() * self.layout.weights_per_gate, compiled=True)
            return gated.reshape(w.shape).to(w.dtype)
        if self.made is not None and torch.is_grad_enabled():
            return self.made
        return gate_weights([self], [w])[0]

    def l1(self) -> Tensor:
        """`||sigmoid(beta*s)||_1` over all weights of this gate, differentiable.

        The forward pass has the soft mask in its hands anyway: the sum is taken there, and its
        gradient rides on the gate's own backward pass. Only when that sum is out of date (no
        forward pass since score or temperature changed, or a backward pass of a compiled model used
        it) is it computed here.
        """
        latest, self._forward_l1 = self._forward_l1, None
        if is_sharded(self.score):  # the forward pass had other tensors, all of each
            mask = _closed(torch.sigmoid(local(self.score) * self.temperature))
            return summed_up(mask.sum() * self.layout.weights_per_gate, self.score)
        if latest is not None and torch.is_grad_enabled():
            l1, versions, compiled = latest
            current = versions == (self.score._version, self.temperature._version)
            if current and not (compiled and _is_freed(l1)):
                return l1
        if native.takes(self.score) and not torch.compiler.is_compiling():
            l1 = cast(Tensor, _L1.apply(self.score, self.temperature))  # type: ignore[no-untyped-call]
        else:
            l1 = self.soft_mask().sum()
        return l1 * self.layout.weights_per_gate

    def move(self, gradient: Tensor, rate: float) -> None:
        """`s <- s - rate * dL/du` with `u = beta*s`, by the `gradient` of `s`.

        An overflow in half precision, for which optimisers skip a step, moves nothing.
        """
        if native.takes(self.score, gradient):
            native.move(self.score, gradient, self.temperature, rate)
        else:
            step = (gradient / self.temperature).nan_to_num_(0.0, 0.0, 0.0)
            self.score.sub_(step, alpha=rate)

    def soft_mask(self) -> Tensor:
        """`sigmoid(beta*s)`, one value per gate; exactly zero below `CLOSED`."""
        return _closed(torch.sigmoid(self.score * self.temperature))

    def decide(self) -> Tensor:
        # H(s): decided by the sign of s, never by a sigmoid that underflows.
        return (self.score > 0).expand(self.layout.view).reshape(self.layout.weight)

    def _keep_l1(self, l1: Tensor, compiled: bool = False) -> None:
        self._forward_l1 = (l1, (self.score._version, self.temperature._version), compiled)

    def __getstate__(self) -> dict[str, Any]:
        # A tensor inside an autograd graph can be neither copied nor saved.
        return {**self.__dict__, "made": None, "_forward_l1": None}


def gate_weights(gates: Sequence[SigmoidGate], weights: Sequence[Tensor]) -> list[Tensor]:
    """What the network computes with instead of `weights`: one node of the autograd graph."""
    learning = torch.is_grad_enabled()
    settings: list[tuple[float, bool]] = []
    tensors: list[Tensor] = []
    for gate, w in zip(gates, weights, strict=True):
        # A view would be a node too, even if it changes nothing.
        view = w if gate.layout.view == w.shape else w.view(gate.layout.view)
        scale = gate.scale
        if gate.settling is not None:
            if native.takes(view, gate.score):
                scale = gate.settling.item()
            else:  # to read a number of another device would be to wait for it
                view, scale = view * gate.settling, 1.0
        settings.append((scale, gate.penalised and learning))
        tensors += view, gate.score, gate.temperature
    outputs = _SigmoidGates.apply(settings, *tensors)  # type: ignore[no-untyped-call]
    gated: list[Tensor] = []
    for i, (gate, w) in enumerate(zip(gates, weights, strict=True)):
        if settings[i][1]:
            gate._keep_l1(outputs[2 * i + 1])
        out = outputs[2 * i]
        gated.append((out if out.shape == w.shape else out.reshape(w.shape)).to(w.dtype))
    return gated


class _SigmoidGates(torch.autograd.Function):
    """`c * sigmoid(beta*s) * w` and `||sigmoid(beta*s)||_1` of each gate, in one pass each way.

    Keeps nothing but its inputs (`w`, `s` and `beta` of each), which live anyway; the backward pass
    computes the soft masks again.
    """

    @staticmethod
    def forward(ctx: Any, settings: list[tuple[float, bool]], *tensors: Tensor) -> Any:
        # Not `save_for_backward`: if losses have gates in common, there are several backward
        # passes, and checkpointing counts what is saved, together or alone.
        ctx.settings, ctx.tensors = settings, tensors
        ctx.versions = [tensor._version for tensor in tensors]
        ctx.set_materialize_grads(False)
        columns = (tensors[::3], tensors[1::3], tensors[2::3])
        rows = zip(*columns, settings, strict=True)
        return tuple(chain.from_iterable(_forward(w, s, beta, *row) for w, s, beta, row in rows))

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
        for i, (scale, _) in enumerate(ctx.settings):
            w, s, beta = tensors[3 * i : 3 * i + 3]
            g, g_l1 = gradients[2 * i : 2 * i + 2]
            both: tuple[Tensor | None, ...] = (None, None)
            if g is not None or g_l1 is not None:
                both = _backward(w, s, beta, g, g_l1, scale, needed[3 * i + 1 : 3 * i + 3])
            found += *both, None
        return tuple(found)


def _forward(
    w: Tensor, s: Tensor, beta: Tensor, scale: float, penalised: bool
) -> tuple[Tensor, Tensor]:
    if native.takes(w, s):
        gated, total = native.forward(w, s, beta, scale, CLOSED)
        return gated, torch.scalar_tensor(total, dtype=s.dtype)
    m = _soft_mask(s, beta)
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
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of `w` and `s`, in two new buffers."""
    if g is None:  # of the sum alone
        g = torch.zeros_like(w)
    if all(needed) and native.takes(w, s):
        g_sum = 0.0 if g_l1 is None else g_l1.item()
        return native.backward(w, s, beta, g, g_sum, scale, CLOSED)
    m = _soft_mask(s, beta)
    grad_s = grad_w = None
    if needed[1]:
        # dL/ds = beta * m * (1 - m) * (c * g * w + dL/dl1), summed over what shares the gate
        of_sum = g.new_zeros(()) if g_l1 is None else g_l1.to(g.dtype)
        grad_m = torch.addcmul(of_sum, g, w, value=scale).sum_to_size(s.shape)
        sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
        grad_s = sigmoid_backward(grad_m, m, grad_input=grad_m).mul_(beta)
    if needed[0]:
        grad_w = _product(m, g, scale)  # dL/dw = c * m * g; overwrites m
    return grad_w, grad_s


class _L1(torch.autograd.Function):
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


def _is_freed(l1: Tensor) -> bool:
    """Whether the compiled graph that this is of has been used by a backward pass, or may have."""
    try:
        cast(Any, l1.grad_fn).saved_tensors  # noqa: B018
    except (RuntimeError, AttributeError):  # the latter where the backend does not compile
        return True
    return False


def _closed(mask: Tensor) -> Tensor:
    return torch.threshold(mask, CLOSED, 0.0)


def _soft_mask(s: Tensor, beta: Tensor) -> Tensor:
    return torch.threshold_(torch.mul(s, beta).sigmoid_(), CLOSED, 0.0)


def _product(m: Tensor, x: Tensor, scale: float) -> Tensor:
    """`scale * m * x` in one pass, in the memory of `m` where the shapes allow."""
    out = m if m.shape == x.shape else None
    return torch.addcmul(m.new_zeros(()), m, x, value=scale, out=out)
