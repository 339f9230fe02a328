"""Sums and products of two values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from prunus_runtime.errors import GraphError
from prunus_runtime.native.interface import Kernel, PairParameters
from prunus_runtime.operation import Array, Flags, Operation, Shape
from prunus_runtime.ops.kind import Channels, Kind, Shapes
from prunus_runtime.plan.builder import Builder, Step


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
        out, parameters = builder.places[step.output], PairParameters(per_channel)
        builder.emit(self.kernel, parameters, a=a, b=b, out=out)


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
