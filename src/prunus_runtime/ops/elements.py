"""Functions of elements: activations, softmax, a factor and a summand for each channel, sums and
products of two values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from prunus_runtime import checks
from prunus_runtime.checks import number, shown
from prunus_runtime.errors import GraphError
from prunus_runtime.native import interface
from prunus_runtime.native.interface import Kernel
from prunus_runtime.operation import Array, Flags, Operation, Shape
from prunus_runtime.ops.kind import Channels, Kind, Shapes, over_channels
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
            Kernel.ACTIVATION,
            step,
            option=function,
            bounds=bounds or (-math.inf, math.inf),
            number=float(attributes.get("slope", 0)),
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


FUNCTIONS: dict[str, tuple[Callable[..., Array], tuple[str, ...]]] = {
    "relu": (lambda x: np.maximum(x, 0), ()),
    "clamp": (lambda x, low, high: np.clip(x, np.float32(low), np.float32(high)), ("low", "high")),
    "leaky_relu": (lambda x, slope: np.where(x > 0, x, x * np.float32(slope)), ("slope",)),
    "elu": (
        lambda x, slope: np.where(x > 0, x, np.expm1(np.minimum(x, 0)) * np.float32(slope)),
        ("slope",),
    ),
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


class Softmax(Kind):
    """Over the channels or the features. Attributes: `log`, whether to take its logarithm."""

    name = "softmax"
    attributes = ("log",)

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        checks.flag(operation, "log")
        return inputs[0]

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        shifted: Array = inputs[0] - inputs[0].max(axis=1, keepdims=True)
        exponentials: Array = np.exp(shifted)
        total: Array = exponentials.sum(axis=1, keepdims=True)
        return shifted - np.log(total) if operation.attributes["log"] else exponentials / total

    def known(self, _: Operation, inputs: Sequence[Channels]) -> Flags:
        return np.full_like(inputs[0].known, inputs[0].known.all())

    def needs(self, _: Operation, __: Flags, shapes: Sequence[Shape]) -> list[Flags]:
        return [np.ones(shapes[0][0], dtype=bool)]

    def emit(self, builder: Builder, step: Step) -> None:
        strips = builder.strips(builder.places[step.output])
        builder.emit_unary(Kernel.SOFTMAX, step, option=step.operation.attributes["log"], **strips)


class Affine(Kind):
    """x * scale + shift. Tensors: `scale` (C), `shift` (C); either may be absent."""

    name = "affine"
    optional_tensors = ("scale", "shift")
    pointwise = True

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        for name in operation.tensors:
            checks.tensor(operation, name, inputs[0][:1])
        return inputs[0]

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        x = inputs[0]
        if "scale" in operation.tensors:
            x = x * over_channels(operation.tensors["scale"], x)
        if "shift" in operation.tensors:
            x = x + over_channels(operation.tensors["shift"], x)
        return x

    def known(self, operation: Operation, inputs: Sequence[Channels]) -> Flags:
        scale = operation.tensors.get("scale")
        return inputs[0].known if scale is None else inputs[0].known | (scale == 0)

    def is_identity(self, operation: Operation) -> bool:
        scale, shift = scale_and_shift(operation)
        return bool(np.all(scale == 1) and not np.any(shift))

    def emit(self, builder: Builder, step: Step) -> None:
        channels = builder.places[step.output].channels
        builder.emit_unary(Kernel.AFFINE, step, floats=factors(step.operation, channels))


def factors(operation: Operation, channels: int) -> tuple[Array, Array]:
    """Scale and shift, also where one is absent."""
    tensors = operation.tensors
    scale = tensors.get("scale", np.ones(channels, np.float32))
    return scale, tensors.get("shift", np.zeros(channels, np.float32))


def scale_and_shift(affine: Operation) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both in float64, also where one is absent."""
    tensors = {name: tensor.astype(np.float64) for name, tensor in affine.tensors.items()}
    scale, shift = tensors.get("scale"), tensors.get("shift")
    if scale is None:
        scale = np.ones_like(shift) if shift is not None else np.ones(1)
    return scale, np.zeros_like(scale) if shift is None else shift


class Pair(Kind):
    """Two inputs of one shape; or the second has one value for each channel: shape (C, 1, 1)."""

    inputs = 2
    kernel: Kernel

    def shape(self, _: Operation, inputs: Sequence[Shape]) -> Shape:
        a, b = inputs
        if a != b and not (len(a) == 3 and b == (a[0], 1, 1)):
            raise GraphError(
                f"its inputs have shapes {a} and {b}: not one shape, nor one value a channel"
            )
        return a

    def emit(self, builder: Builder, step: Step) -> None:
        a, b = (builder.places[name] for name in step.inputs)
        per_channel = (b.height, b.width) != (a.height, a.width)
        builder.emit(self.kernel, a=a, b=b, out=builder.places[step.output], option=per_channel)


class Add(Pair):
    """a + b."""

    name = "add"
    kernel = Kernel.ADD
    constant_operand = "shift"

    def run(self, _: Operation, inputs: Sequence[Array]) -> Array:
        return inputs[0] + inputs[1]

    def joined(self, operation: Operation, layer: Step, shapes: Shapes) -> Step | None:
        a, b = operation.inputs
        if shapes[a] != shapes[b] or layer.is_bounded or layer.residual is not None:
            return None
        return replace(layer, output=operation.output, residual=b if layer.output == a else a)


class Multiply(Pair):
    """a * b."""

    name = "multiply"
    kernel = Kernel.MULTIPLY
    constant_operand = "scale"

    def run(self, _: Operation, inputs: Sequence[Array]) -> Array:
        return inputs[0] * inputs[1]

    def known(self, operation: Operation, inputs: Sequence[Channels]) -> Flags:
        return super().known(operation, inputs) | inputs[0].zero | inputs[1].zero
