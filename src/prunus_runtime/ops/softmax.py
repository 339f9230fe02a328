"""Softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prunus_runtime.checks import shown
from prunus_runtime.errors import GraphError
from prunus_runtime.native.interface import Kernel, SoftmaxParameters
from prunus_runtime.operation import Array, Flags, Operation, Shape
from prunus_runtime.ops.kind import Channels, Kind
from prunus_runtime.plan.builder import Builder, Step


class Softmax(Kind):
    """Over the channels or the features. Attributes: `log`, whether of it the logarithm."""

    name = "softmax"
    attributes = ("log",)

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        if type(operation.attributes["log"]) is not bool:
            raise GraphError(f"`log` is {shown(operation.attributes['log'])}, not true or false")
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
        parameters = SoftmaxParameters(bool(step.operation.attributes["log"]))
        builder.emit_unary(Kernel.SOFTMAX, step, parameters, items=1)
