"""Operators that only move elements."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
import torch.nn.functional as F

from prunus.deployment.operators.walk import (
    Arguments,
    Attributes,
    Compute,
    Tensors,
    Translate,
    Unsupported,
    Value,
    Walk,
    value_of,
)
from prunus_runtime.ops import kind_of
from prunus_runtime.ops.layers import PIXELWISE


def _reshape(walk: Walk, a: Arguments) -> Value:
    x, shape = value_of(a["self"]), walk.node_shape()
    before = walk.shapes[x]
    if shape == before:
        return x
    if shape == (math.prod(before),):
        return walk.add("flatten", x)
    if len(before) == 1 and shape == (before[0], 1, 1):
        return _unflatten(walk, x)
    raise Unsupported(f"from {before} to {shape}; it may only flatten")


def _unflatten(walk: Walk, x: Value) -> Value:
    """`x` of shape (C,) as (C, 1, 1): the layers back to where it was flattened, done as images."""
    operation = walk.operations.get(x)
    if operation is not None:
        before = Value(operation.inputs[0])
        shape = (*walk.shapes[x], 1, 1)
        if operation.kind == "flatten" and walk.shapes[before] == shape:
            return before
        if kind_of(operation).pointwise:
            return walk.again(operation, shape, inputs=(_unflatten(walk, before),))
        if operation.kind == "linear":
            weight = operation.tensors["weight"]
            return walk.again(
                operation,
                shape,
                kind="conv",
                inputs=(_unflatten(walk, before),),
                attributes=PIXELWISE,
                tensors={**operation.tensors, "weight": weight[:, :, None, None]},
            )
    raise Unsupported("to make images of features that were not flattened images")


def _same(walk: Walk, a: Arguments) -> Value:
    x = value_of(a["self"] if "self" in a else a["input"])
    walk.node_shape()
    return x


def _cat(walk: Walk, a: Arguments) -> Value:
    inputs = [value_of(x) for x in a["tensors"]]
    if a["dim"] not in (1, -len(walk.shapes[inputs[0]])):
        raise Unsupported(f"over dimension {a['dim']}; only channels or features")
    return inputs[0] if len(inputs) == 1 else walk.add("concatenate", *inputs)


def _pad(walk: Walk, a: Arguments) -> Value:
    x, amounts = value_of(a["self"]), [*a["pad"], *[0] * 8]
    if a.get("mode", "constant") != "constant" or a["value"]:
        raise Unsupported("with anything but zeros")
    if len(walk.shapes[x]) != 3 or min(amounts) < 0 or any(amounts[6:]):
        raise Unsupported(f"by {a['pad']}")
    left, right, top, bottom, *channels = amounts[:6]
    return walk.add("pad", x, channels=channels, padding=[top, left, bottom, right])


def _slice(walk: Walk, a: Arguments) -> Value:
    x, dim = value_of(a["self"]), a["dim"]
    if walk.node_shape() == walk.shapes[x]:
        return x
    return _sliced(walk, x, dim, slice(a["start"], a["end"], a["step"]))


def _sliced(walk: Walk, x: Value, dim: int, part: slice) -> Value:
    shape = walk.shapes[x]
    axis = dim % (1 + len(shape)) - 1
    start, stop, step = part.indices(shape[axis])
    if axis < 0 or len(shape) != 3 or start >= stop:
        raise Unsupported("on anything but channels, height and width, or for nothing at all")
    bounds = [[0, size, 1] for size in shape]
    bounds[axis] = [start, stop, step]
    starts, stops, steps = (list(bound) for bound in zip(*bounds, strict=True))
    sizes = [len(range(*bound)) for bound in bounds]
    return walk.add("slice", x, shape=sizes, start=starts, stop=stops, step=steps)


def _split(walk: Walk, a: Arguments) -> list[Value]:
    x, dim = value_of(a["self"]), a["dim"]
    total = walk.shapes[x][dim % (1 + len(walk.shapes[x])) - 1]
    sizes: Any = (
        -(-total // a["chunks"])
        if "chunks" in a
        else next(a[name] for name in ("split_size", "split_sizes") if name in a)
    )
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return [
        _sliced(walk, x, dim, slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)
    ]


OPERATORS: dict[str, Translate] = {
    "flatten": _reshape,
    "view": _reshape,
    "_unsafe_view": _reshape,
    "reshape": _reshape,
    "squeeze": _reshape,
    "unsqueeze": _reshape,
    "dropout": _same,
    "clone": _same,
    "contiguous": _same,
    "alias": _same,
    "detach": _same,
    "cat": _cat,
    "concat": _cat,
    "pad": _pad,
    "constant_pad_nd": _pad,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": _split,
    "chunk": _split,
}


def _compute_pad(a: Attributes, _: Tensors, x: Any) -> Any:
    top, left, bottom, right = a["padding"]
    return F.pad(x, [left, right, top, bottom, *a["channels"]])


def _compute_slice(a: Attributes, _: Tensors, x: Any) -> Any:
    parts = map(slice, a["start"], a["stop"], a["step"])
    return operator.getitem(x, (slice(None), *parts))


COMPUTE: dict[str, Compute] = {
    "concatenate": lambda _, __, *x: torch.cat(list(x), dim=1),
    "flatten": lambda _, __, x: torch.flatten(x, 1),
    "pad": _compute_pad,
    "slice": _compute_slice,
}
