"""Operations that move values but compute nothing: joined, reshaped, padded, sliced."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from prunus_runtime.checks import image, integers, sequence, shown
from prunus_runtime.errors import GraphError
from prunus_runtime.native.interface import CopyParameters, Kernel
from prunus_runtime.operation import Array, Flags, Operation, Shape
from prunus_runtime.ops.kind import Channels, Indices, Kind, all_tied, with_attributes
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


class Reshape(Kind):
    """The positions of an image as one sequence, row by row."""

    name = "reshape"

    def shape(self, _: Operation, inputs: Sequence[Shape]) -> Shape:
        channels, height, width = image(inputs[0])
        return (channels, height * width)

    def run(self, _: Operation, inputs: Sequence[Array]) -> Array:
        return inputs[0].reshape(*inputs[0].shape[:2], math.prod(inputs[0].shape[2:]))

    def emit(self, builder: Builder, step: Step) -> None:
        a, out = builder.places[step.inputs[0]], builder.places[step.output]
        pitch = a.width * builder.lanes
        rows = out._replace(
            pitch=pitch, tail=out.plane - a.height * pitch, height=a.height, width=a.width
        )
        builder.copy(a, rows)


class Transpose(Kind):
    """The positions of a sequence become its channels, and its channels positions."""

    name = "transpose"

    def shape(self, _: Operation, inputs: Sequence[Shape]) -> Shape:
        channels, positions = sequence(inputs[0])
        return (positions, channels)

    def run(self, _: Operation, inputs: Sequence[Array]) -> Array:
        return inputs[0].transpose(0, 2, 1)

    def known(self, _: Operation, inputs: Sequence[Channels]) -> Flags:
        return np.full(inputs[0].shape[1], inputs[0].known.all())

    def needs(self, _: Operation, __: Flags, shapes: Sequence[Shape]) -> list[Flags]:
        return [np.ones(shapes[0][0], dtype=bool)]

    def tied(self, operation: Operation, shapes: Sequence[Shape]) -> Iterator[tuple[int, str, int]]:
        return all_tied(operation, shapes[0][1])

    def emit(self, builder: Builder, step: Step) -> None:
        out = builder.places[step.output]
        work = out.channels * out.width // 2
        items = -(-out.channels // builder.vector)
        builder.emit_unary(Kernel.TRANSPOSE, step, items=items, parts=builder.parts(work))


class Flatten(Kind):
    """All elements of an image or a sequence as one vector, channel by channel."""

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


class Pad(Kind):
    """Attributes: `channels` [before, behind], `padding` [top, left, bottom, right]."""

    name = "pad"
    attributes = ("channels", "padding")

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        channels, height, width = image(inputs[0])
        before, behind = integers(operation, "channels", 2, 0)
        top, left, bottom, right = integers(operation, "padding", 4, 0)
        return (channels + before + behind, height + top + bottom, width + left + right)

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        top, left, bottom, right = operation.attributes["padding"]
        around = ((0, 0), tuple(operation.attributes["channels"]), (top, bottom), (left, right))
        return np.pad(inputs[0], around)

    def sources(self, operation: Operation, shapes: Sequence[Shape]) -> list[Indices]:
        around = tuple(operation.attributes["channels"])
        return [np.pad(np.arange(shapes[0][0]), around, constant_values=-1)]

    def narrowed(self, operation: Operation, _: Flags, after: Flags) -> Operation:
        before, behind = operation.attributes["channels"]
        end = len(after) - behind
        return with_attributes(
            operation, channels=[int(after[:before].sum()), int(after[end:].sum())]
        )

    def is_identity(self, operation: Operation) -> bool:
        attributes = operation.attributes
        return not any(attributes["channels"]) and not any(attributes["padding"])

    def emit(self, builder: Builder, step: Step) -> None:
        a, out = builder.places[step.inputs[0]], builder.places[step.output]
        before, behind = step.operation.attributes["channels"]
        top, left = step.operation.attributes["padding"][:2]
        for start, count in ((0, before), (before + a.channels, behind)):
            if count:  # rows behind the input's last one are zero
                builder.copy(a, out.channels_from(start, count), CopyParameters(top=a.height))
        inside = out.channels_from(before, a.channels)
        builder.copy(a, inside, CopyParameters(top=-top, left=-left))


class Slice(Kind):
    """Attributes: `start`, `stop`, `step`, each with a number for each axis of the input."""

    name = "slice"
    attributes = ("start", "stop", "step")

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        axes = len(inputs[0])
        start = integers(operation, "start", axes, 0)
        stop = integers(operation, "stop", axes, 1)
        step = integers(operation, "step", axes, 1)
        for axis, length in enumerate(inputs[0]):
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
        start, by = ([*step.operation.attributes[name]] for name in ("start", "step"))
        top, left = [0, 0, *start[1:]][-2:]
        rows, columns = [1, 1, *by[1:]][-2:]
        view = a.channels_from(start[0], out.channels, by[0])
        builder.copy(view, out, CopyParameters(top, rows, left, columns))


def _slices(operation: Operation) -> list[slice]:
    a = operation.attributes
    return list(map(slice, a["start"], a["stop"], a["step"]))


def _skips_channels(operation: Operation) -> bool:
    return bool(operation.attributes["step"][0] != 1)
