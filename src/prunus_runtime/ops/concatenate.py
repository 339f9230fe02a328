"""Values side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prunus_runtime.checks import shown
from prunus_runtime.errors import GraphError
from prunus_runtime.operation import Array, Operation, Shape
from prunus_runtime.ops.kind import Indices, Kind
from prunus_runtime.plan.builder import Builder, Step


class Concatenate(Kind):
    """Two or more inputs, over the channels or the features."""

    name = "concatenate"
    inputs = -2

    def shape(self, _: Operation, inputs: Sequence[Shape]) -> Shape:
        if any(shape[1:] != inputs[0][1:] or len(shape) != len(inputs[0]) for shape in inputs):
            raise GraphError(
                f"its inputs have shapes {shown(tuple(inputs))}: they must only differ in channels"
            )
        return (sum(shape[0] for shape in inputs), *inputs[0][1:])

    def run(self, _: Operation, inputs: Sequence[Array]) -> Array:
        return np.concatenate(inputs, axis=1)

    def sources(self, _: Operation, shapes: Sequence[Shape]) -> list[Indices]:
        counts = [shape[0] for shape in shapes]
        sources = []
        for count, end in zip(counts, np.cumsum(counts), strict=True):
            source = np.full(sum(counts), -1)
            source[end - count : end] = np.arange(count)
            sources.append(source)
        return sources

    def is_identity(self, operation: Operation) -> bool:
        return len(operation.inputs) == 1

    def emit(self, builder: Builder, step: Step) -> None:
        out, start = builder.places[step.output], 0
        for name in step.inputs:
            a = builder.places[name]
            builder.copy(a, out.channels_from(start, a.channels))
            start += a.channels
