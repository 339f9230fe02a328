"""Layers with weights, batch norm, and pooling."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prunus.deployment.axes import whole
from prunus.deployment.operators.attention import scores_of
from prunus.deployment.operators.sequences import product
from prunus.deployment.operators.views import as_sequence, without_axis
from prunus.deployment.operators.walk import (
    COMPUTE,
    OPERATORS,
    Arguments,
    Attributes,
    Scores,
    Tensors,
    Unsupported,
    Value,
    constant_of,
    is_symmetric,
    padded,
    pair_of,
    register,
    value_of,
    view_of,
)

if TYPE_CHECKING:
    from prunus.deployment.walk import Walk
    from prunus_runtime.graph import Operation


@register(OPERATORS, "conv2d", "convolution")
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


@register(OPERATORS, "linear")
def _linear(walk: Walk, a: Arguments) -> Value:
    return product(walk, view_of(a["input"]), constant_of(a["weight"]), a["bias"])


@register(OPERATORS, "addmm")
def _addmm(walk: Walk, a: Arguments) -> Value:
    if a["alpha"] != 1 or a["beta"] != 1:
        raise Unsupported("with factors alpha or beta")
    return product(walk, view_of(a["mat1"]), constant_of(a["mat2"]).T, a["self"])


@register(OPERATORS, "mm", "matmul")
def _mm(walk: Walk, a: Arguments) -> Value | Scores:
    x, weight = a["self"], a.get("mat2", a.get("other"))
    if isinstance(x, Value) and isinstance(weight, Value):
        return scores_of(walk, x, weight)
    return product(walk, view_of(x), constant_of(weight).T, None)


@register(OPERATORS, "batch_norm", "_native_batch_norm_legit_no_training")
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


@register(COMPUTE, "conv")
def _compute_conv(a: Attributes, t: Tensors, x: Any) -> Any:
    padding = a["padding"]
    if not is_symmetric(padding):
        x, padding = padded(x, padding), [0, 0]
    sides = list(padding[:2])
    y = F.conv2d(x, t["weight"], t.get("bias"), a["stride"], sides, a["dilation"], a["groups"])
    return operator.add(y, t["plane"]) if "plane" in t else y


@register(COMPUTE, "linear")
def _compute_linear(_: Attributes, t: Tensors, x: Any) -> Any:
    if x.ndim == 2:
        return F.linear(x, t["weight"], t.get("bias"))
    return F.linear(x.transpose(1, 2), t["weight"], t.get("bias")).transpose(1, 2)


def to_layer(operation: Operation) -> tuple[nn.Module, list[int]]:
    """The standard layer for an operation with weights, but for its plane; and the padding
    [top, left, bottom, right] that its input needs before."""
    a, weight = operation.attributes, operation.tensors["weight"]
    has_bias = "bias" in operation.tensors
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


@register(OPERATORS, "max_pool2d")
def _max_pool(walk: Walk, a: Arguments) -> Any:
    x, kernel = value_of(a["self"]), pair_of(a["kernel_size"])
    stride = pair_of(a["stride"]) if a["stride"] else kernel
    dilation = pair_of(a["dilation"])
    padding = _pool_padding(walk, x, kernel, stride, pair_of(a["padding"]), dilation)
    return walk.add("max_pool", x, kernel=kernel, stride=stride, padding=padding, dilation=dilation)


@register(OPERATORS, "avg_pool2d")
def _avg_pool(walk: Walk, a: Arguments) -> Value:
    if a["divisor_override"] is not None:
        raise Unsupported("with divisor_override")
    x, kernel, sides = value_of(a["self"]), pair_of(a["kernel_size"]), pair_of(a["padding"])
    stride = pair_of(a["stride"]) if a["stride"] else kernel
    return walk.add(
        "avg_pool",
        x,
        kernel=kernel,
        stride=stride,
        padding=_pool_padding(walk, x, kernel, stride, sides, [1, 1]),
        count_padding=2 * sides if a["count_include_pad"] else [0, 0, 0, 0],
    )


def _pool_padding(
    walk: Walk,
    x: Value,
    kernel: list[int],
    stride: list[int],
    sides: list[int],
    dilation: list[int],
) -> list[int]:
    """Padding on four sides, with what `ceil_mode` looks at beyond it at the bottom and right."""
    ends = []
    for axis, out in enumerate(walk.node_shape()[1:]):
        seen = (out - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        size = walk.shapes[x][1 + axis]
        ends.append(sides[axis] + max(0, seen - (size + 2 * sides[axis])))
    return [*sides, *ends]


@register(OPERATORS, "adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def _adaptive_avg_pool(walk: Walk, a: Arguments) -> Value:
    return walk.add("adaptive_avg_pool", value_of(a["self"]), size=list(walk.node_shape()[1:]))


@register(OPERATORS, "mean")
def _mean(walk: Walk, a: Arguments) -> Value:
    x, dims = view_of(a["self"]), list(a["dim"] or ())
    if len(dims) == 1:
        return _mean_of_positions(walk, as_sequence(walk, x), dims[0], a["keepdim"])
    x = value_of(x)
    if len(walk.shapes[x]) != 3 or sorted(d % 4 for d in dims) != [2, 3]:
        raise Unsupported(f"over the dimensions {a['dim']}; only over height and width")
    channels = walk.shapes[x][0]
    pooled = walk.add("adaptive_avg_pool", x, shape=(channels, 1, 1), size=[1, 1])
    return pooled if a["keepdim"] else walk.add("flatten", pooled)


def _mean_of_positions(walk: Walk, x: Value, dim: int, keepdim: bool) -> Value:
    axes, shape = walk.axes(x), walk.shapes[x]
    if len(shape) != 2 or axes[dim] != whole(1, shape[1]):
        raise Unsupported(f"over dimension {dim}; only over all positions")
    mean = walk.add("mean", x, shape=shape[:1])
    return walk.view(mean, without_axis(axes, dim, keepdim))


@register(COMPUTE, "max_pool")
def _compute_max_pool(a: Attributes, _: Tensors, x: Any) -> Any:
    sides, kernel = list(a["padding"][:2]), list(a["kernel"])
    too_much = any(2 * p > k for p, k in zip(sides, kernel, strict=True))  # for PyTorch
    if too_much or not is_symmetric(a["padding"]):
        x, sides = padded(x, a["padding"], -torch.inf), [0, 0]
    return F.max_pool2d(x, kernel, list(a["stride"]), sides, list(a["dilation"]))


@register(COMPUTE, "avg_pool")
def _compute_avg_pool(a: Attributes, t: Tensors, x: Any) -> Any:
    y = F.avg_pool2d(padded(x, a["padding"]), list(a["kernel"]), list(a["stride"]))
    return operator.truediv(y, t["counted"]) if "counted" in t else y


@register(COMPUTE, "adaptive_avg_pool")
def _compute_adaptive_avg_pool(a: Attributes, _: Tensors, x: Any) -> Any:
    return F.adaptive_avg_pool2d(x, a["size"])


def avg_pool_tensors(a: Attributes, shape: Sequence[int]) -> dict[str, Tensor]:
    """The fraction of each window that its mean counts, unless every window counts whole."""
    inner = padded(torch.ones(1, 1, *shape[1:]), a["count_padding"], 1.0)
    pairs = zip(a["padding"], a["count_padding"], strict=True)
    outer = padded(inner, [whole - part for whole, part in pairs])
    counted = F.avg_pool2d(outer, list(a["kernel"]), list(a["stride"]))
    return {} if bool((counted == 1).all()) else {"counted": counted}
