"""What each operation of a graph computes, in PyTorch.

The functions take tensors, and also the proxies of `torch.fx`: so `module.py` records them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prunus_runtime.graph import Operation

Attributes = Mapping[str, Any]
Tensors = Mapping[str, Any]


def compute(operation: Operation, inputs: Sequence[Any], tensors: Tensors) -> Any:
    """The value of `operation` for a batch, with the tensors that `constants` gives."""
    return _KINDS[operation.kind](operation.attributes, tensors, *inputs)


def constants(operation: Operation, shape: Sequence[int]) -> dict[str, Tensor]:
    """The tensors with which an operation computes on a first input of `shape`."""
    tensors = {name: torch.from_numpy(array.copy()) for name, array in operation.tensors.items()}
    if operation.kind == "affine":
        return {k: t.reshape(-1, *[1] * (len(shape) - 1)) for k, t in tensors.items()}
    if operation.kind == "avg_pool":
        counted = _counted(operation.attributes, shape)
        return {} if bool((counted == 1).all()) else {"counted": counted}
    return tensors


def evaluate(operation: Operation, *inputs: Tensor) -> Tensor:
    """The value of `operation` for batches of tensors, in their precision."""
    tensors = constants(operation, inputs[0].shape[1:])
    result: Tensor = compute(operation, inputs, {k: t.to(inputs[0]) for k, t in tensors.items()})
    return result


def symmetric(padding: Sequence[int]) -> bool:
    """Whether a layer of PyTorch can have this [top, left, bottom, right]."""
    return list(padding[:2]) == list(padding[2:])


def padded(x: Any, padding: Sequence[int], value: float = 0.0) -> Any:
    """`x` with [top, left, bottom, right] of `value` around it."""
    top, left, bottom, right = padding
    return F.pad(x, [left, right, top, bottom], value=value) if any(padding) else x


def _conv(a: Attributes, t: Tensors, x: Any) -> Any:
    padding = a["padding"]
    if not symmetric(padding):
        x, padding = padded(x, padding), [0, 0]
    sides = list(padding[:2])
    y = F.conv2d(x, t["weight"], t.get("bias"), a["stride"], sides, a["dilation"], a["groups"])
    return operator.add(y, t["plane"]) if "plane" in t else y


def _linear(_: Attributes, t: Tensors, x: Any) -> Any:
    return F.linear(x, t["weight"], t.get("bias"))


def _affine(_: Attributes, t: Tensors, x: Any) -> Any:
    if "scale" in t:
        x = operator.mul(x, t["scale"])
    return operator.add(x, t["shift"]) if "shift" in t else x


def _max_pool(a: Attributes, _: Tensors, x: Any) -> Any:
    sides, kernel = list(a["padding"][:2]), list(a["kernel"])
    if not symmetric(a["padding"]) or any(2 * p > k for p, k in zip(sides, kernel, strict=True)):
        x, sides = padded(x, a["padding"], -torch.inf), [0, 0]
    return F.max_pool2d(x, kernel, list(a["stride"]), sides, list(a["dilation"]))


def _avg_pool(a: Attributes, t: Tensors, x: Any) -> Any:
    y = F.avg_pool2d(padded(x, a["padding"]), list(a["kernel"]), list(a["stride"]))
    return operator.truediv(y, t["counted"]) if "counted" in t else y


def _counted(a: Attributes, shape: Sequence[int]) -> Tensor:
    """The fraction of each window of an `avg_pool` that its mean is over."""
    inner = padded(torch.ones(1, 1, *shape[1:]), a["count_padding"], 1.0)
    pairs = zip(a["padding"], a["count_padding"], strict=True)
    outer = padded(inner, [whole - part for whole, part in pairs])
    return F.avg_pool2d(outer, list(a["kernel"]), list(a["stride"]))


def _pad(a: Attributes, _: Tensors, x: Any) -> Any:
    top, left, bottom, right = a["padding"]
    return F.pad(x, [left, right, top, bottom, *a["channels"]])


def _slice(a: Attributes, _: Tensors, x: Any) -> Any:
    parts = map(slice, a["start"], a["stop"], a["step"])
    return operator.getitem(x, (slice(None), *parts))


def _softmax(a: Attributes, _: Tensors, x: Any) -> Any:
    return (F.log_softmax if a["log"] else F.softmax)(x, dim=1)


def _activation(a: Attributes, _: Tensors, x: Any) -> Any:
    return _ACTIVATIONS[a["kind"]](x, a)


_ACTIVATIONS: dict[str, Callable[[Any, Attributes], Any]] = {
    "relu": lambda x, _: F.relu(x),
    "clamp": lambda x, a: F.hardtanh(x, a["low"], a["high"]),
    "leaky_relu": lambda x, a: F.leaky_relu(x, a["slope"]),
    "elu": lambda x, a: F.elu(x, a["slope"]),
    "sigmoid": lambda x, _: torch.sigmoid(x),
    "tanh": lambda x, _: torch.tanh(x),
    "silu": lambda x, _: F.silu(x),
    "hardswish": lambda x, _: F.hardswish(x),
    "hardsigmoid": lambda x, _: F.hardsigmoid(x),
    "gelu": lambda x, _: F.gelu(x),
    "gelu_tanh": lambda x, _: F.gelu(x, approximate="tanh"),
}

_KINDS: dict[str, Callable[..., Any]] = {
    "conv": _conv,
    "linear": _linear,
    "affine": _affine,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "adaptive_avg_pool": lambda a, _, x: F.adaptive_avg_pool2d(x, a["size"]),
    "activation": _activation,
    "add": lambda _, __, x, y: operator.add(x, y),
    "multiply": lambda _, __, x, y: operator.mul(x, y),
    "concatenate": lambda _, __, *x: torch.cat(list(x), dim=1),
    "flatten": lambda _, __, x: torch.flatten(x, 1),
    "pad": _pad,
    "slice": _slice,
    "softmax": _softmax,
}
