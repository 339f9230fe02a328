"""Operators that only move elements."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from prunus.deployment.axes import BATCH, count
from prunus.deployment.operators.views import part_of, reviewed
from prunus.deployment.operators.walk import (
    COMPUTE,
    OPERATORS,
    Arguments,
    Attributes,
    Tensors,
    Unsupported,
    Value,
    register,
    value_of,
    view_of,
)
from prunus_runtime.ops import kind_of
from prunus_runtime.ops.layers import PIXELWISE

if TYPE_CHECKING:
    from prunus.deployment.walk import Walk


@register(OPERATORS, "flatten", "view", "_unsafe_view", "reshape", "squeeze", "unsqueeze")
def _reshape(walk: Walk, a: Arguments) -> Value:
    x = view_of(a["self"])
    if x.axes is None and walk.node_sizes()[0] == (True, 1):
        before, (_, *sizes) = walk.shapes[x], walk.node_sizes()
        shape = tuple(size.number for size in sizes)
        if shape == before:
            return x
        if shape == (math.prod(before),):
            return walk.add("flatten", x)
        if len(before) == 1 and shape == (before[0], 1, 1):
            return _unflatten(walk, x)
    return reviewed(walk, x)


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


@register(OPERATORS, "dropout", "clone", "contiguous", "alias", "detach")
def _same(_: Walk, a: Arguments) -> Value:
    return view_of(a["self"] if "self" in a else a["input"])


@register(OPERATORS, "cat", "concat")
def _cat(walk: Walk, a: Arguments) -> Value:
    inputs = [value_of(x) for x in a["tensors"]]
    if a["dim"] not in (1, -len(walk.shapes[inputs[0]])):
        raise Unsupported(f"over dimension {a['dim']}; only channels or features")
    return inputs[0] if len(inputs) == 1 else walk.add("concatenate", *inputs)


@register(OPERATORS, "pad", "constant_pad_nd")
def _pad(walk: Walk, a: Arguments) -> Value:
    x, amounts = value_of(a["self"]), [*a["pad"], *[0] * 8]
    if a.get("mode", "constant") != "constant" or a["value"]:
        raise Unsupported("with anything but zeros")
    if len(walk.shapes[x]) != 3 or min(amounts) < 0 or any(amounts[6:]):
        raise Unsupported(f"by {a['pad']}")
    left, right, top, bottom, *channels = amounts[:6]
    return walk.add("pad", x, channels=channels, padding=[top, left, bottom, right])


@register(OPERATORS, "slice")
def _slice(walk: Walk, a: Arguments) -> Value:
    x, dim, part = view_of(a["self"]), a["dim"], slice(a["start"], a["end"], a["step"])
    axis = walk.axes(x)[dim]
    size = count(axis)
    if BATCH in axis or part.indices(size) == (0, size, 1):
        return x
    return part_of(walk, x, dim, part)


@register(OPERATORS, "split", "split_with_sizes", "chunk")
def _split(walk: Walk, a: Arguments) -> list[Value]:
    x, dim = view_of(a["self"]), a["dim"]
    total = count(walk.axes(x)[dim])
    sizes: Any = a.get("split_size", a.get("split_sizes"))
    if "chunks" in a:
        sizes = -(-total // a["chunks"])
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return [
        part_of(walk, x, dim, slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)
    ]


@register(COMPUTE, "pad")
def _compute_pad(a: Attributes, _: Tensors, x: Any) -> Any:
    top, left, bottom, right = a["padding"]
    return F.pad(x, [left, right, top, bottom, *a["channels"]])


@register(COMPUTE, "slice")
def _compute_slice(a: Attributes, _: Tensors, x: Any) -> Any:
    parts = map(slice, a["start"], a["stop"], a["step"])
    return operator.getitem(x, (slice(None), *parts))


@register(COMPUTE, "concatenate")
def _compute_concatenate(_: Attributes, __: Tensors, *inputs: Any) -> Any:
    return torch.cat(list(inputs), dim=1)


@register(COMPUTE, "flatten")
def _compute_flatten(_: Attributes, __: Tensors, x: Any) -> Any:
    return torch.flatten(x, 1)
