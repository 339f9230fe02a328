"""Activations: functions of one element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from prunus_runtime.checks import number, shown
from prunus_runtime.errors import GraphError
from prunus_runtime.native import interface
from prunus_runtime.native.interface import ActivationParameters, Kernel
from prunus_runtime.operation import Array, Operation, Shape
from prunus_runtime.ops.kind import Kind, Shapes
from prunus_runtime.plan.builder import Builder, Step


class Activation(Kind):
    """Attributes: `kind`, one of `FUNCTIONS`, and the options of that function."""

    name = "activation"
    pointwise = True

    def attributes_of(self, operation: Operation) -> tuple[str, ...]:
        kind = operation.attributes.get("kind")
        if not isinstance(kind, str) or kind not in FUNCTIONS:
            raise GraphError(f"`kind` is {shown(kind)}, not one of {', '.join(sorted(FUNCTIONS))}")
        return ("kind", *FUNCTIONS[kind][1])

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        values = {name: number(operation, name) for name in operation.attributes if name != "kind"}
        if "low" in values and values["low"] > values["high"]:
            raise GraphError(f"`low` {values['low']} is more than `high` {values['high']}")
        return inputs[0]

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        function, names = FUNCTIONS[operation.attributes["kind"]]
        return function(inputs[0], *(operation.attributes[name] for name in names))

    def joined(self, operation: Operation, layer: Step, _: Shapes) -> Step | None:
        bounds = _bounds(operation)
        if bounds is None or layer.is_bounded:
            return None
        return replace(layer, output=operation.output, low=bounds[0], high=bounds[1])

    def emit(self, builder: Builder, step: Step) -> None:
        bounds, attributes = _bounds(step.operation), step.operation.attributes
        function = interface.Activation["CLAMP" if bounds else attributes["kind"].upper()]
        builder.emit_unary(
            *(Kernel.ACTIVATION, step, ActivationParameters(function)),
            bounds=bounds or (-math.inf, math.inf),
            slope=float(attributes.get("slope", 0)),
        )


def _bounds(operation: Operation) -> tuple[float, float] | None:
    """The bounds of an activation that only clamps."""
    attributes = operation.attributes
    if attributes["kind"] == "relu":
        return 0.0, math.inf
    if attributes["kind"] == "clamp":
        return float(attributes["low"]), float(attributes["high"])
    return None


def _sigmoid(x: Array) -> Array:
    y: Array = 0.5 * np.tanh(0.5 * x) + 0.5  # which cannot overflow
    return y


def _erf(x: Array) -> Array:
    """Within 1.5e-7 everywhere (Abramowitz and Stegun, formula 7.1.26)."""
    t = 1 / (1 + 0.3275911 * np.abs(x.astype(np.float64)))
    terms = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    series = sum(term * t ** (power + 1) for power, term in enumerate(terms))
    y: Array = (np.sign(x) * (1 - series * np.exp(-np.square(x, dtype=np.float64)))).astype(x.dtype)
    return y


def _leaky_relu(x: Array, slope: float) -> Array:
    return np.where(x > 0, x, x * np.float32(slope))


def _elu(x: Array, slope: float) -> Array:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)) * np.float32(slope))


def _clamp(x: Array, low: float, high: float) -> Array:
    return np.clip(x, np.float32(low), np.float32(high))


FUNCTIONS: dict[str, tuple[Callable[..., Array], tuple[str, ...]]] = {
    "relu": (lambda x: np.maximum(x, 0), ()),
    "clamp": (_clamp, ("low", "high")),
    "leaky_relu": (_leaky_relu, ("slope",)),
    "elu": (_elu, ("slope",)),
    "sigmoid": (_sigmoid, ()),
    "tanh": (np.tanh, ()),
    "silu": (lambda x: x * _sigmoid(x), ()),
    "hardswish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), ()),
    "hardsigmoid": (lambda x: np.clip(x / 6 + 0.5, 0, 1), ()),
    "gelu": (lambda x: 0.5 * x * (1 + _erf(x * np.float32(math.sqrt(0.5)))), ()),
    "gelu_tanh": (
        lambda x: x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)),
        (),
    ),
}
"""Each function, and the attributes that are its options."""
