"""Pooling."""

from __future__ import annotations

from typing import Any

from prunus.deployment.operators.walk import (
    Arguments,
    Translate,
    Unsupported,
    Value,
    Walk,
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
