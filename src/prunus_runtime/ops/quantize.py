"""Values in eight bits, so that layers can multiply bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prunus_runtime.checks import number, shown
from prunus_runtime.errors import GraphError
from prunus_runtime.native.interface import Kernel
from prunus_runtime.operation import Array, Operation, Shape
from prunus_runtime.ops.kind import Kind
from prunus_runtime.plan.builder import Builder, Step
from prunus_runtime.plan.layout import ArenaLayout

LEVELS = 256


class Quantize(Kind):
    """The nearest of 256 values that are a step apart, of which one is zero.

    Attributes: `step`, positive, and `zero`: how many of them are less than zero. Layers that read
    the output and whose weights are integers of eight bits, times a scale for each filter, multiply
    bytes where the processor is fast at that; elsewhere they compute the same in float32.
    """

    name = "quantize"
    attributes = ("step", "zero")
    pointwise = True

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        step, zero = number(operation, "step"), operation.attributes["zero"]
        if not 1e-30 <= step <= 1e30:
            raise GraphError(f"`step` is {step}, not a number from 1e-30 to 1e30")
        if type(zero) is not int or not 0 <= zero < LEVELS:
            raise GraphError(f"`zero` is {shown(zero)}, not an integer from 0 to {LEVELS - 1}")
        return inputs[0]

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        step, zero = operation.attributes["step"], operation.attributes["zero"]
        low, high = np.float32(-zero), np.float32(LEVELS - 1 - zero)
        with np.errstate(over="ignore"):
            steps = inputs[0] * np.float32(1 / step)
        # fmax and fmin: what is not a number becomes `low`.
        y: Array = np.rint(np.fmin(np.fmax(steps, low), high)) * np.float32(step)
        return y

    def reserve(self, layout: ArenaLayout, step: Step) -> str | None:
        layout.tie(step.output, step.inputs[0])
        return None

    def emit(self, builder: Builder, step: Step) -> None:
        attributes = step.operation.attributes
        low = -attributes["zero"]
        builder.emit_unary(
            Kernel.QUANTIZE,
            step,
            option=step.output in builder.packed,
            bounds=(low, LEVELS - 1 + low),
            number=attributes["step"],
        )
