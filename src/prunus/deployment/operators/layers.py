"""Layers with weights, and batch norm."""

from __future__ import annotations

import operator
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from prunus.deployment.operators.walk import (
    Arguments,
    Attributes,
    Compute,
    Tensors,
    Translate,
    Unsupported,
    Value,
    Walk,
    constant_of,
    is_symmetric,
    padded,
    pair_of,
    value_of,
)
from prunus_runtime.graph import Operation


def _conv2d(walk: Walk, a: Arguments) -> Value:
    x, weight, bias = value_of(a["input"]), constant_of(a["weight"]), a["bias"]
    if a.get("transposed") or weight.ndim != 4:
        raise Unsupported("as anything but a convolution over height and width")
    stride, dilation = pair_of(a["stride"]), pair_of(a["dilation"])
    padding = a["padding"]
    if isinstance(padding, str):
        around = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        if padding == "valid":
            around = [0, 0]
        before = [n // 2 for n in around]
        sides = [*before, *(n - b for n, b in zip(around, before, strict=True))]
    else:
        sides = 2 * pair_of(padding)
    return walk.add(
        "conv",
        x,
        tensors={"weight": weight, "bias": None if bias is None else constant_of(bias)},
        stride=stride,
        padding=sides,
        dilation=dilation,
        groups=a["groups"],
    )


def _linear(walk: Walk, a: Arguments) -> Value:
    return _product(walk, value_of(a["input"]), constant_of(a["weight"]), a["bias"])


def _addmm(walk: Walk, a: Arguments) -> Value:
    if a["alpha"] != 1 or a["beta"] != 1:
        raise Unsupported("with factors alpha or beta")
    return _product(walk, value_of(a["mat1"]), constant_of(a["mat2"]).T, a["self"])


def _mm(walk: Walk, a: Arguments) -> Value:
    x, weight = a["self"], a.get("mat2", a.get("other"))
    return _product(walk, value_of(x), constant_of(weight).T, None)


def _product(walk: Walk, x: Value, weight: Tensor, bias: Any) -> Value:
    if len(walk.shapes[x]) != 1 or weight.ndim != 2:
        raise Unsupported(
            "on more dimensions than (n, features); flatten them, or use a 1x1 convolution"
        )
    tensors = {"weight": weight, "bias": None if bias is None else constant_of(bias)}
    return walk.add("linear", x, tensors=tensors)


def _batch_norm(walk: Walk, a: Arguments) -> Any:
    mean, variance = a["running_mean"], a["running_var"]
    if a.get("training") or mean is None or variance is None:
        raise Unsupported("with the statistics of the batch; it needs running statistics")
    # In float64, because folding must not add errors of its own.
    scale = (variance.double() + a["eps"]).rsqrt()
    if a["weight"] is not None:
        scale = scale * a["weight"].double()
    shift = -mean.double() * scale
    if a["bias"] is not None:
        shift = shift + a["bias"].double()
    x = value_of(a["input"])
    result = walk.add("affine", x, shape=walk.shapes[x], tensors={"scale": scale, "shift": shift})
    return result if "training" in a else (result, None, None)


OPERATORS: dict[str, Translate] = {
    "conv2d": _conv2d,
    "convolution": _conv2d,
    "linear": _linear,
    "addmm": _addmm,
    "mm": _mm,
    "matmul": _mm,
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
}


def _compute_conv(a: Attributes, t: Tensors, x: Any) -> Any:
    padding = a["padding"]
    if not is_symmetric(padding):
        x, padding = padded(x, padding), [0, 0]
    sides = list(padding[:2])
    y = F.conv2d(x, t["weight"], t.get("bias"), a["stride"], sides, a["dilation"], a["groups"])
    return operator.add(y, t["plane"]) if "plane" in t else y


def _compute_linear(_: Attributes, t: Tensors, x: Any) -> Any:
    return F.linear(x, t["weight"], t.get("bias"))


COMPUTE: dict[str, Compute] = {"conv": _compute_conv, "linear": _compute_linear}


def to_layer(operation: Operation) -> tuple[nn.Module, list[int]]:
    """The standard layer for an operation with weights, but for its plane; and the padding
    [top, left, bottom, right] that its input needs before."""
    a, weight, has_bias = (
        operation.attributes,
        operation.tensors["weight"],
        "bias" in operation.tensors,
    )
    if weight.ndim == 2:
        return nn.Linear(weight.shape[1], weight.shape[0], has_bias), [0, 0, 0, 0]
    inside, outside = list(a["padding"][:2]), [0, 0, 0, 0]
    if not is_symmetric(a["padding"]):
        inside, outside = [0, 0], list(a["padding"])
    layer = nn.Conv2d(
        weight.shape[1] * a["groups"],
        weight.shape[0],
        (weight.shape[2], weight.shape[3]),
        stride=tuple(a["stride"]),
        padding=tuple(inside),
        dilation=tuple(a["dilation"]),
        groups=a["groups"],
        bias=has_bias,
    )
    return layer, outside
