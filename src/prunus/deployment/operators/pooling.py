"""Pooling."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prunus.deployment.operators.walk import (
    Arguments,
    Attributes,
    Compute,
    Tensors,
    Translate,
    Unsupported,
    Value,
    Walk,
    is_symmetric,
    padded,
    pair_of,
    value_of,
)


def _max_pool(walk: Walk, a: Arguments) -> Any:
    x, kernel = value_of(a["self"]), pair_of(a["kernel_size"])
    stride = pair_of(a["stride"]) if a["stride"] else kernel
    dilation = pair_of(a["dilation"])
    padding = _pool_padding(walk, x, kernel, stride, pair_of(a["padding"]), dilation)
    return walk.add("max_pool", x, kernel=kernel, stride=stride, padding=padding, dilation=dilation)


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


def _adaptive_avg_pool(walk: Walk, a: Arguments) -> Value:
    return walk.add("adaptive_avg_pool", value_of(a["self"]), size=list(walk.node_shape()[1:]))


def _mean(walk: Walk, a: Arguments) -> Value:
    x = value_of(a["self"])
    if len(walk.shapes[x]) != 3 or sorted(d % 4 for d in a["dim"] or ()) != [2, 3]:
        raise Unsupported(f"over the dimensions {a['dim']}; only over height and width")
    channels = walk.shapes[x][0]
    pooled = walk.add("adaptive_avg_pool", x, shape=(channels, 1, 1), size=[1, 1])
    return pooled if a["keepdim"] else walk.add("flatten", pooled)


OPERATORS: dict[str, Translate] = {
    "max_pool2d": _max_pool,
    "avg_pool2d": _avg_pool,
    "adaptive_avg_pool2d": _adaptive_avg_pool,
    "_adaptive_avg_pool2d": _adaptive_avg_pool,
    "mean": _mean,
}


def _compute_max_pool(a: Attributes, _: Tensors, x: Any) -> Any:
    sides, kernel = list(a["padding"][:2]), list(a["kernel"])
    too_much = any(2 * p > k for p, k in zip(sides, kernel, strict=True))  # for PyTorch
    if too_much or not is_symmetric(a["padding"]):
        x, sides = padded(x, a["padding"], -torch.inf), [0, 0]
    return F.max_pool2d(x, kernel, list(a["stride"]), sides, list(a["dilation"]))


def _compute_avg_pool(a: Attributes, t: Tensors, x: Any) -> Any:
    y = F.avg_pool2d(padded(x, a["padding"]), list(a["kernel"]), list(a["stride"]))
    return operator.truediv(y, t["counted"]) if "counted" in t else y


def _avg_pool_tensors(a: Attributes, _: Tensors, shape: Sequence[int]) -> dict[str, Tensor]:
    """The fraction of each window that its mean is over, unless all are whole."""
    inner = padded(torch.ones(1, 1, *shape[1:]), a["count_padding"], 1.0)
    pairs = zip(a["padding"], a["count_padding"], strict=True)
    outer = padded(inner, [whole - part for whole, part in pairs])
    counted = F.avg_pool2d(outer, list(a["kernel"]), list(a["stride"]))
    return {} if bool((counted == 1).all()) else {"counted": counted}


COMPUTE: dict[str, Compute] = {
    "max_pool": _compute_max_pool,
    "avg_pool": _compute_avg_pool,
    "adaptive_avg_pool": lambda a, _, x: F.adaptive_avg_pool2d(x, a["size"]),
}
TENSORS = {"avg_pool": _avg_pool_tensors}
