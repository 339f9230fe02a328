"""Layers with weights, and batch norm."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from prunus.deployment.operators.walk import (
    Arguments,
    Translate,
    Unsupported,
    Value,
    Walk,
    constant_of,
    pair_of,
    value_of,
)


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
