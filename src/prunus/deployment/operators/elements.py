"""Activations, softmax, and arithmetic."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from prunus.deployment.axes import arranged
from prunus.deployment.operators.views import features_at
from prunus.deployment.operators.walk import (
    COMPUTE,
    OPERATORS,
    Arguments,
    Attributes,
    Tensors,
    Unsupported,
    Value,
    constant_of,
    register,
    value_of,
    view_of,
)
from prunus_runtime.ops.elements import scale_and_shift

if TYPE_CHECKING:
    from prunus.deployment.walk import Walk
    from prunus_runtime.graph import Operation

_LOWEST, _HIGHEST = torch.finfo(torch.float32).min, torch.finfo(torch.float32).max

_FUNCTIONS: dict[str, Callable[[Any, Attributes], Any]] = {
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


def _activation(kind: str, walk: Walk, a: Arguments) -> Value:
    return walk.like("activation", view_of(a["self"]), kind=kind)


for _name in ("relu", "sigmoid", "tanh", "silu", "hardswish", "hardsigmoid"):  # as ATen calls them
    OPERATORS[_name] = partial(_activation, _name)


@register(OPERATORS, "hardtanh", "clamp", "clamp_min", "clamp_max")
def _clamp(walk: Walk, a: Arguments) -> Value:
    low, high = (a.get(k, a.get(f"{k}_val")) for k in ("min", "max"))
    if any(isinstance(bound, Tensor | Value) for bound in (low, high)):
        raise Unsupported("with bounds that are tensors")
    x = view_of(a["self"])
    if low == 0 and high is None:
        return walk.like("activation", x, kind="relu")
    return walk.like(
        "activation",
        x,
        kind="clamp",
        low=_LOWEST if low is None else float(low),
        high=_HIGHEST if high is None else float(high),
    )


@register(OPERATORS, "relu6")
def _relu6(walk: Walk, a: Arguments) -> Value:
    return _clamp(walk, {**a, "min": 0.0, "max": 6.0})


@register(OPERATORS, "leaky_relu")
def _leaky_relu(walk: Walk, a: Arguments) -> Value:
    slope = float(a["negative_slope"])
    return walk.like("activation", view_of(a["self"]), kind="leaky_relu", slope=slope)


@register(OPERATORS, "prelu")
def _prelu(walk: Walk, a: Arguments) -> Value:
    weight = constant_of(a["weight"])
    if weight.numel() != 1:
        raise Unsupported("with a slope for each channel")
    return walk.like("activation", view_of(a["self"]), kind="leaky_relu", slope=float(weight))


@register(OPERATORS, "elu")
def _elu(walk: Walk, a: Arguments) -> Value:
    if a["scale"] != 1 or a["input_scale"] != 1:
        raise Unsupported("with a scale")
    return walk.like("activation", view_of(a["self"]), kind="elu", slope=float(a["alpha"]))


@register(OPERATORS, "gelu")
def _gelu(walk: Walk, a: Arguments) -> Value:
    kind = "gelu" if a["approximate"] == "none" else "gelu_tanh"
    return walk.like("activation", view_of(a["self"]), kind=kind)


@register(OPERATORS, "softmax", "_softmax")
def _softmax(walk: Walk, a: Arguments, *, log: bool = False) -> Value:
    return walk.like("softmax", features_at(walk, view_of(a["self"]), a["dim"]), log=log)


@register(OPERATORS, "log_softmax", "_log_softmax")
def _log_softmax(walk: Walk, a: Arguments) -> Value:
    return _softmax(walk, a, log=True)


@register(OPERATORS, "add")
def _add(walk: Walk, a: Arguments, sign: float = 1.0) -> Value:
    left, right, factor = a["self"], a["other"], sign * a.get("alpha", 1)
    if isinstance(left, Value) and isinstance(right, Value):
        if factor != 1:
            right = _affine(walk, right, factor, 0.0)
        return _combine(walk, "add", left, right)
    if isinstance(left, Value):
        return _affine(walk, left, 1.0, _factor(right) * factor)
    return _affine(walk, view_of(right), factor, left)


@register(OPERATORS, "sub")
def _sub(walk: Walk, a: Arguments) -> Value:
    return _add(walk, a, -1.0)


@register(OPERATORS, "rsub")
def _rsub(walk: Walk, a: Arguments) -> Value:
    return _add(walk, {**a, "self": a["other"], "other": a["self"]}, -1.0)


@register(OPERATORS, "mul")
def _mul(walk: Walk, a: Arguments) -> Value:
    left, right = a["self"], a["other"]
    if not isinstance(left, Value):
        left, right = view_of(right), left
    if isinstance(right, Value):
        spelled_out = _gelu_tanh_of(walk, left, right) or _gelu_tanh_of(walk, right, left)
        if spelled_out is not None:
            return walk.like("activation", spelled_out, kind="gelu_tanh")
        return _combine(walk, "multiply", left, right)
    return _affine(walk, left, right, 0.0)


@register(OPERATORS, "pow")
def _pow(walk: Walk, a: Arguments) -> Value:
    x, exponent = view_of(a["self"]), a["exponent"]
    if exponent not in (2, 3):
        raise Unsupported(f"with the exponent {exponent}; only 2 and 3")
    square = walk.like("multiply", x, x)
    return square if exponent == 2 else walk.like("multiply", square, x)


def _gelu_tanh_of(walk: Walk, half: Value, rest: Value) -> Value | None:
    """`x`, if `half * rest` is 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as some models
    spell out GELU."""
    x = _scaled(walk, half, 0.5)
    tangent = walk.operations.get(rest)
    if x is None or tangent is None or _constants(tangent) != (1, 1):
        return None
    tanh = walk.operations.get(tangent.inputs[0])
    if tanh is None or tanh.attributes.get("kind") != "tanh":
        return None
    inner = walk.operations.get(_scaled(walk, tanh.inputs[0], math.sqrt(2 / math.pi)) or "")
    if inner is None or inner.kind != "add" or inner.inputs[0] != x:
        return None
    cube = walk.operations.get(_scaled(walk, inner.inputs[1], 0.044715) or "")
    if cube is None or cube.kind != "multiply" or cube.inputs[1] != x:
        return None
    square = walk.operations.get(cube.inputs[0])
    if square is None or square.kind != "multiply" or square.inputs != (x, x):
        return None
    return Value(x, half.axes)


def _scaled(walk: Walk, y: str, factor: float) -> str | None:
    """`x`, if `y` is `factor * x`."""
    operation = walk.operations.get(y)
    if operation is None or (constants := _constants(operation)) is None:
        return None
    scale, shift = constants
    return operation.inputs[0] if abs(scale - factor) < 1e-6 and shift == 0 else None


def _constants(operation: Operation) -> tuple[float, float] | None:
    """Scale and shift of an `affine` that has the same for all channels."""
    if operation.kind != "affine":
        return None
    found = [np.unique(tensor) for tensor in scale_and_shift(operation)]
    return (float(found[0][0]), float(found[1][0])) if max(map(len, found)) == 1 else None


@register(OPERATORS, "div")
def _div(walk: Walk, a: Arguments) -> Value:
    if a.get("rounding_mode") is not None or isinstance(a["other"], Value):
        raise Unsupported("other than by a constant, without rounding")
    return _affine(walk, view_of(a["self"]), 1.0 / _factor(a["other"]), 0.0)


@register(OPERATORS, "neg")
def _neg(walk: Walk, a: Arguments) -> Value:
    return _affine(walk, view_of(a["self"]), -1.0, 0.0)


def _combine(walk: Walk, kind: str, left: Value, right: Value) -> Value:
    if walk.shapes[left] == walk.shapes[right] and left.axes == right.axes:
        return walk.like(kind, left, right)
    left, right, shape = value_of(left), value_of(right), walk.node_shape()
    if walk.shapes[left] != shape:
        left, right = right, left
    if walk.shapes[left] != shape or walk.shapes[right] not in (shape, (shape[0], 1, 1)):
        raise Unsupported(f"on the shapes {walk.shapes[left]} and {walk.shapes[right]}")
    return walk.add(kind, left, right)


def _affine(walk: Walk, x: Value, scale: Any, shift: Any) -> Value:
    """`scale * x + shift`, each a number or a tensor that does not make `x` larger; only `shift`
    may differ between positions."""
    factor, summand = _constant(walk, x, scale), _constant(walk, x, shift)
    if not _is_uniform(factor):
        raise Unsupported("with a factor that differs between positions")
    tensors = {"scale": _per_channel(factor)}
    if _is_uniform(summand):
        return walk.like("affine", x, tensors={**tensors, "shift": _per_channel(summand)})
    if bool((factor != 1).any()):
        x = walk.like("affine", x, tensors=tensors)
    return walk.like("add_plane", x, tensors={"plane": summand})


def _constant(walk: Walk, x: Value, constant: Any) -> Tensor:
    """A constant in the shape of `x`."""
    tensor, shape, axes = _factor(constant), walk.shapes[x], walk.axes(x)
    try:
        return arranged(tensor, axes, shape)
    except RuntimeError:
        raise Unsupported(
            f"with a constant of the shape {tuple(tensor.shape)} on values of the shape {shape}"
        ) from None


def _is_uniform(tensor: Tensor) -> bool:
    """Whether each channel has one number."""
    return bool((tensor.flatten(1) == tensor.flatten(1)[:, :1]).all()) if tensor.ndim > 1 else True


def _per_channel(tensor: Tensor) -> Tensor:
    return tensor.reshape(len(tensor), -1)[:, 0]


def _factor(value: Any) -> Tensor:
    return torch.as_tensor(value).double()


@register(COMPUTE, "activation")
def _compute_activation(a: Attributes, _: Tensors, x: Any) -> Any:
    return _FUNCTIONS[a["kind"]](x, a)


@register(COMPUTE, "quantize")
def _compute_quantize(a: Attributes, _: Tensors, x: Any) -> Any:
    steps = operator.mul(x, 1 / a["step"])
    return operator.mul(torch.round(torch.clamp(steps, -a["zero"], 255 - a["zero"])), a["step"])


@register(COMPUTE, "softmax")
def _compute_softmax(a: Attributes, _: Tensors, x: Any) -> Any:
    return (F.log_softmax if a["log"] else F.softmax)(x, dim=1)


@register(COMPUTE, "add")
def _compute_add(_: Attributes, __: Tensors, a: Any, b: Any) -> Any:
    return operator.add(a, b)


@register(COMPUTE, "multiply")
def _compute_multiply(_: Attributes, __: Tensors, a: Any, b: Any) -> Any:
    return operator.mul(a, b)


@register(COMPUTE, "affine")
def _compute_affine(_: Attributes, t: Tensors, x: Any) -> Any:
    if "scale" in t:
        x = operator.mul(x, t["scale"])
    return operator.add(x, t["shift"]) if "shift" in t else x
