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


def takes(*tensors: Tensor) -> bool:
    """Whether passes over these tensors can be made here."""
    first = tensors[0]
    return all(_is_plain(t) and t.stride() == first.stride() for t in tensors) and _can_run()


def forward(
    w: Tensor, s: Tensor, beta: Tensor, scale: float, closed: float
) -> tuple[Tensor, float]:
    """`scale * m * w`, and the sum of `m = sigmoid(beta * s)`, which is zero up to `closed`."""
    gated = torch.empty_like(w)
    numbers = {"beta": beta.item(), "scale": scale, "closed": closed}
    return gated, _run(_FORWARD, s, weight=w, gated=gated, **numbers)


def backward(
    w: Tensor, s: Tensor, beta: Tensor, g: Tensor, g_l1: Tensor, scale: float, closed: float
) -> tuple[Tensor, Tensor]:
    """The gradients of `w` and of `s`, from that of the gated weight and that of the sum."""
    if g.stride() != w.stride():
        g = torch.empty_like(w).copy_(g)
    grads = {"grad_weight": torch.empty_like(w), "grad_score": torch.empty_like(s)}
    numbers = {"beta": beta.item(), "grad_l1": g_l1.item(), "scale": scale, "closed": closed}
    _run(_BACKWARD, s, weight=w, gradient=g, **grads, **numbers)
    return grads["grad_weight"], grads["grad_score"]


def l1(s: Tensor, beta: Tensor, closed: float) -> float:
    """The sum of `sigmoid(beta * s)`."""
    return _run(_L1, s, beta=beta.item(), closed=closed)


def l1_backward(s: Tensor, beta: Tensor, g: Tensor, closed: float) -> Tensor:
    """The gradient of `s`, from that of the sum."""
    grad = torch.empty_like(s)
    _run(_L1_BACKWARD, s, grad_score=grad, beta=beta.item(), grad_l1=g.item(), closed=closed)
    return grad


def move(s: Tensor, gradient: Tensor, beta: Tensor, rate: float) -> None:
    """`s <- s - rate * gradient / beta`, where that quotient is finite."""
    _run(_MOVE, s, gradient=gradient, beta=beta.item(), scale=rate)
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


def _is_plain(tensor: Tensor) -> bool:
    # Subclasses may hold no numbers, or only some of them.
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))
    )


def _run(number: int, s: Tensor, **others: Tensor | float) -> float:
    core = _core()
    assert core is not None
    content = {
        name: value.data_ptr() if isinstance(value, Tensor) else value
        for name, value in others.items()
    }
    gate = core.gate(score=s.data_ptr(), count=s.numel(), **content)
    return float(core.passes(gate, number, torch.get_num_threads(), core.parallel))
