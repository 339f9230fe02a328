"""Images as features."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from prunus_runtime.operation import Array, Operation, Shape
from prunus_runtime.ops.kind import Indices, Kind
from prunus_runtime.plan.builder import Builder, Step


class Flatten(Kind):
    """All elements of an image as one vector, channel by channel."""

    name = "flatten"
    output_without_gaps = True

    def shape(self, _: Operation, inputs: Sequence[Shape]) -> Shape:
        return (math.prod(inputs[0]),)

    def run(self, _: Operation, inputs: Sequence[Array]) -> Array:
        return inputs[0].reshape(len(inputs[0]), math.prod(inputs[0].shape[1:]))

    def sources(self, _: Operation, shapes: Sequence[Shape]) -> list[Indices]:
        return [np.repeat(np.arange(shapes[0][0]), math.prod(shapes[0][1:]))]

    def emit(self, builder: Builder, step: Step) -> None:
        a, out = builder.places[step.inputs[0]], builder.places[step.output]
        assert out.plane == builder.lanes
        builder.copy(a, out.as_planes(a.channels, a.height, a.width, builder.lanes))
