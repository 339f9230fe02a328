"""The sigmoid gate in the native core of `prunus_runtime`: one pass over memory each way.

For plain float32 tensors on the CPU, with a score for each weight. For all others, in compiled
models, and where there is no native core, PyTorch's own operations do the same (`sigmoid.py`).
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_FORWARD, _BACKWARD, _L1, _L1_BACKWARD, _MOVE = range(5)  # in the order of gates.cpp

_PLAIN = (Tensor, nn.Parameter)
"""Subclasses may hold none of their numbers here, or only some."""


def takes(*tensors: Tensor) -> bool:
    """Whether passes over these tensors can be made here."""
    # Written out, for speed: small networks spend more time here than in the passes.
    shape, stride = tensors[0].shape, tensors[0].stride()
    for tensor in tensors:
        if (
            type(tensor) not in _PLAIN
            or tensor.dtype is not torch.float32
            or not tensor.is_cpu
            or tensor.shape != shape
            or tensor.stride() != stride
        ):
            return False
    return _is_dense(shape, stride) and _can_run()


def forward(
    w: Tensor, s: Tensor, beta: Tensor, scale: float, closed: float
) -> tuple[Tensor, float]:
    """`scale * m * w`, and the sum of `m = sigmoid(beta * s)`, which is zero up to `closed`."""
    gated = torch.empty_like(w)
    total = _run(
        _FORWARD,
        score=s.data_ptr(),
        count=s.numel(),
        weight=w.data_ptr(),
        gated=gated.data_ptr(),
        beta=beta.item(),
        scale=scale,
        closed=closed,
    )
    return gated, total


def backward(
    w: Tensor, s: Tensor, beta: Tensor, g: Tensor, g_l1: float, scale: float, closed: float
) -> tuple[Tensor, Tensor, float]:
    """The gradients of `w`, `s` and `log(scale)`, from those of the gated weight and of the sum.

    The last is the sum of `w` times its gradient.
    """
    if g.stride() != w.stride():
        g = torch.empty_like(w).copy_(g)
    grad_w, grad_s = torch.empty_like(w), torch.empty_like(s)
    total = _run(
        _BACKWARD,
        score=s.data_ptr(),
        count=s.numel(),
        weight=w.data_ptr(),
        gradient=g.data_ptr(),
        grad_weight=grad_w.data_ptr(),
        grad_score=grad_s.data_ptr(),
        beta=beta.item(),
        grad_l1=g_l1,
        scale=scale,
        closed=closed,
    )
    return grad_w, grad_s, total


def l1(s: Tensor, beta: Tensor, closed: float) -> float:
    """The sum of `sigmoid(beta * s)`."""
    return _run(_L1, score=s.data_ptr(), count=s.numel(), beta=beta.item(), closed=closed)


def l1_backward(s: Tensor, beta: Tensor, g: float, closed: float) -> Tensor:
    """The gradient of `s`, from that of the sum."""
    grad = torch.empty_like(s)
    _run(
        _L1_BACKWARD,
        score=s.data_ptr(),
        count=s.numel(),
        grad_score=grad.data_ptr(),
        beta=beta.item(),
        grad_l1=g,
        closed=closed,
    )
    return grad


def move(s: Tensor, gradient: Tensor, beta: Tensor, rate: float) -> None:
    """`s <- s - rate * gradient / beta`, where that quotient is finite."""
    _run(
        _MOVE,
        score=s.data_ptr(),
        count=s.numel(),
        gradient=gradient.data_ptr(),
        beta=beta.item(),
        scale=rate,
    )
    torch.autograd.graph.increment_version(s)


class _Core(NamedTuple):
    gate: Any
    """The structure that describes a pass."""
    passes: Any
    parallel: Any
    """`GOMP_parallel` of the OpenMP library that PyTorch has loaded; None if it is another kind."""


@cache
def _core() -> _Core | None:
    from prunus_runtime import native

    if not native.available():
        return None
    parallel = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
    return _Core(
        native.Gate, native.gate_passes(), parallel and ctypes.cast(parallel, ctypes.c_void_p)
    )


def _can_run() -> bool:
    core = _core()
    return core is not None and (core.parallel is not None or torch.get_num_threads() == 1)


@cache
def _is_dense(shape: torch.Size, stride: tuple[int, ...]) -> bool:
    """Whether such a tensor holds each number of its memory exactly once."""
    tensor = torch.empty_strided(shape, stride, device="meta")
    return bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))


def _run(number: int, **content: float) -> float:
    core = _core()
    assert core is not None
    total: float = core.passes(core.gate(**content), number, torch.get_num_threads(), core.parallel)
    return total
