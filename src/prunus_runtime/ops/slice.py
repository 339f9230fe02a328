"""Parts of images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prunus_runtime.checks import image, integers
from prunus_runtime.errors import GraphError
from prunus_runtime.operation import Array, Flags, Operation, Shape
from prunus_runtime.ops.kind import Indices, Kind, with_attributes
from prunus_runtime.plan.builder import Builder, Step


class Slice(Kind):
    """Attributes: `start`, `stop`, `step`, each [channels, height, width]."""

    name = "slice"
    attributes = ("start", "stop", "step")

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        start = integers(operation, "start", 3, 0)
        stop = integers(operation, "stop", 3, 1)
        step = integers(operation, "step", 3, 1)
        for axis, length in enumerate(image(inputs[0])):
            if not start[axis] < stop[axis] <= length:
                raise GraphError(
                    f"`start` {start} and `stop` {stop} do not fit an input of shape {inputs[0]}"
                )
        return tuple(len(range(*bounds)) for bounds in zip(start, stop, step, strict=True))

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        return inputs[0][:, *_slices(operation)]

    def sources(self, operation: Operation, shapes: Sequence[Shape]) -> list[Indices]:
        return [np.arange(shapes[0][0])[_slices(operation)[0]]]

    def needs(self, operation: Operation, wanted: Flags, shapes: Sequence[Shape]) -> list[Flags]:
        if _skips_channels(operation):  # its steps would not fit a smaller input
            return [np.ones(shapes[0][0], dtype=bool)]
        return super().needs(operation, wanted, shapes)

    def narrowed(self, operation: Operation, before: Flags, _: Flags) -> Operation:
        if _skips_channels(operation):
            return operation
        bounds = {name: list(operation.attributes[name]) for name in ("start", "stop")}
        for bound in bounds.values():
            bound[0] = int(before[: bound[0]].sum())
        return with_attributes(operation, **bounds)

    def emit(self, builder: Builder, step: Step) -> None:
        a, out = builder.places[step.inputs[0]], builder.places[step.output]
        start, by = step.operation.attributes["start"], step.operation.attributes["step"]
        view = a.channels_from(start[0], out.channels, by[0])
        builder.copy(view, out, top=start[1], row_step=by[1], left=start[2], column_step=by[2])


def _slices(operation: Operation) -> list[slice]:
    a = operation.attributes
    return list(map(slice, a["start"], a["stop"], a["step"]))


def _skips_channels(operation: Operation) -> bool:
    return bool(operation.attributes["step"][0] != 1)
