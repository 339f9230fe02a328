"""Sums, differences, products and quotients."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
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
    value_of,
)
from prunus_runtime.graph import Shape


def _add(walk: Walk, a: Arguments, sign: float = 1.0) -> Value:
    left, right, factor = a["self"], a["other"], sign * a.get("alpha", 1)
    if isinstance(left, Value) and isinstance(right, Value):
        if factor != 1:
            right = _affine(walk, right, factor, 0.0)
        return _combine(walk, "add", left, right)
    if isinstance(left, Value):
        return _affine(walk, left, 1.0, _factor(right) * factor)
    return _affine(walk, value_of(right), factor, left)


def _sub(walk: Walk, a: Arguments) -> Value:
    return _add(walk, a, -1.0)


def _rsub(walk: Walk, a: Arguments) -> Value:
    return _add(walk, {**a, "self": a["other"], "other": a["self"]}, -1.0)


def _mul(walk: Walk, a: Arguments) -> Value:
    left, right = a["self"], a["other"]
    if isinstance(left, Value) and isinstance(right, Value):
        return _combine(walk, "multiply", left, right)
    return (
        _affine(walk, left, right, 0.0)
        if isinstance(left, Value)
        else _affine(walk, value_of(right), left, 0.0)
    )


def _div(walk: Walk, a: Arguments) -> Value:
    if a.get("rounding_mode") is not None or isinstance(a["other"], Value):
        raise Unsupported("other than by a constant, without rounding")
    return _affine(walk, value_of(a["self"]), 1.0 / torch.as_tensor(a["other"]).double(), 0.0)


def _neg(walk: Walk, a: Arguments) -> Value:
    return _affine(walk, value_of(a["self"]), -1.0, 0.0)


def _combine(walk: Walk, kind: str, left: Value, right: Value) -> Value:
    shape = walk.node_shape()
    if walk.shapes[left] != shape:
        left, right = right, left
    if walk.shapes[left] != shape or walk.shapes[right] not in (shape, (shape[0], 1, 1)):
        raise Unsupported(f"on the shapes {walk.shapes[left]} and {walk.shapes[right]}")
    return walk.add(kind, left, right)


def _affine(walk: Walk, x: Value, scale: Any, shift: Any) -> Value:
    """`scale * x + shift`, each a number or a tensor with at most one value for each channel."""
    shape = walk.shapes[x]
    tensors = {"scale": _per_channel(scale, shape), "shift": _per_channel(shift, shape)}
    return walk.add("affine", x, shape=shape, tensors=tensors)


def _per_channel(factor: Any, shape: Shape) -> Tensor:
    tensor = _factor(factor)
    if tensor.numel() == 1:
        return tensor.reshape(1).expand(shape[0])
    of_channels = (shape[0],) + (1,) * (len(shape) - 1)
    sizes = tuple(tensor.shape)
    while len(sizes) > len(of_channels) and sizes[0] == 1:
        sizes = sizes[1:]
    if sizes != of_channels:
        raise Unsupported(
            f"with a constant of the shape {tuple(tensor.shape)} on values of the shape {shape}: "
            "it must be one number, or one for each channel"
        )
    return tensor.reshape(-1)


def _factor(value: Any) -> Tensor:
    return torch.as_tensor(value).double()


OPERATORS: dict[str, Translate] = {
    "add": _add,
    "sub": _sub,
    "rsub": _rsub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
}


def _compute_affine(_: Attributes, t: Tensors, x: Any) -> Any:
    if "scale" in t:
        x = operator.mul(x, t["scale"])
    return operator.add(x, t["shift"]) if "shift" in t else x


def _affine_tensors(_: Attributes, t: Tensors, shape: Sequence[int]) -> dict[str, Tensor]:
    return {name: tensor.reshape(-1, *[1] * (len(shape) - 1)) for name, tensor in t.items()}


COMPUTE: dict[str, Compute] = {
    "add": lambda _, __, a, b: operator.add(a, b),
    "multiply": lambda _, __, a, b: operator.mul(a, b),
    "affine": _compute_affine,
}
TENSORS = {"affine": _affine_tensors}
