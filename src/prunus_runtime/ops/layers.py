"""Layers with weights: convolutions and linear layers."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prunus_runtime import checks
from prunus_runtime.errors import GraphError
from prunus_runtime.native.interface import CopyParameters, Place
from prunus_runtime.operation import Array, Flags, Operation, Shape
from prunus_runtime.ops.kind import Channels, Kind, over_channels, with_attributes
from prunus_runtime.ops.windows import count_windows, padded, windows
from prunus_runtime.plan.builder import Builder, Step
from prunus_runtime.plan.layout import ArenaLayout
from prunus_runtime.plan.lists import make_lists
from prunus_runtime.plan.packed import can_be_packed, pack
from prunus_runtime.plan.tiled import emit_across, emit_along, emit_single, fastest_lists


class Layer(Kind):
    """Weighted sums of inputs; `bias` is optional."""

    tensors = ("weight",)

    def work(self, operation: Operation, _: Sequence[Shape]) -> int:
        return math.prod(operation.tensors["weight"].shape[1:])

    def known(self, operation: Operation, inputs: Sequence[Channels]) -> Flags:
        unknown: Flags = _reads(operation) @ ~inputs[0].known
        return ~unknown

    def needs(self, operation: Operation, wanted: Flags, _: Sequence[Shape]) -> list[Flags]:
        read: Flags = wanted @ _reads(operation)
        return [read | (not read.any())]  # an input of no channels is not possible

    def tied(self, operation: Operation, shapes: Sequence[Shape]) -> Iterator[tuple[int, str, int]]:
        """Whole groups stay or go."""
        groups = operation.attributes.get("groups", 1)
        if groups == 1:
            return
        filters = len(operation.tensors["weight"])
        for name, channels in ((operation.inputs[0], shapes[0][0]), (operation.output, filters)):
            for channel in range(channels):
                group = channel // (channels // groups)
                yield group * (filters // groups), name, channel

    def narrowed(self, operation: Operation, before: Flags, after: Flags) -> Operation:
        smaller = super().narrowed(operation, before, after)
        groups = operation.attributes.get("groups", 1)
        if groups > 1:
            return with_attributes(smaller, groups=int(after[:: len(after) // groups].sum()))
        weight = np.ascontiguousarray(smaller.tensors["weight"][:, before])
        return replace(smaller, tensors={**smaller.tensors, "weight": weight})

    def reserve(self, layout: ArenaLayout, step: Step) -> str | None:
        if layout.along and (layout.lanes > 1 or not layout.is_single(step.output)):
            layout.margins[step.output].vectors = True
            if step.residual:
                layout.tie(step.output, step.residual)
        return None

    def takes_packed(self, operation: Operation, made: Operation, output: Shape) -> bool:
        return math.prod(output[1:]) > 1 and can_be_packed(operation, made)

    @abstractmethod
    def weights(self, builder: Builder, step: Step, /) -> tuple[Place, Array, NDArray[np.int64]]:
        """The input, as the layer reads it, the weights (filters, channels, kh, kw), and where each
        input of the first output position is (all channels, kh, kw)."""

    def emit(self, builder: Builder, step: Step) -> None:
        made = builder.packed.get(step.inputs[0]) if step.inputs else None
        step, packed = (step, None) if made is None else pack(step, made)
        out, weight = builder.places[step.output], step.operation.tensors["weight"]
        if step.inputs:
            a, weight, offsets = self.weights(builder, step)
        else:
            a, offsets = out, np.zeros((0, 1, 1), np.int64)
            weight = np.zeros((len(weight), 0, 1, 1), np.float32)
        groups = step.operation.attributes.get("groups", 1) if step.inputs else 1
        if builder.lanes == 1 and builder.along and out.height * out.width == 1:
            lists = make_lists(weight, groups, offsets)
            emit_single(builder, step, a, lists, self.is_matrix(builder, weight, a))
            return
        lists = fastest_lists(builder, weight, groups, offsets, out, is_packed=packed is not None)
        if lists.bundle == builder.filters:
            emit_across(builder, step, a, lists, a.pitch, 1)
        elif builder.along:
            emit_along(builder, step, a, lists, packed)
        else:
            stride = step.operation.attributes.get("stride") if step.inputs else None
            rows, columns = stride or (0, 1)
            emit_across(builder, step, a, lists, rows * a.pitch, columns * builder.lanes, packed)

    def is_matrix(self, _builder: Builder, _weight: Array, _a: Place, /) -> bool:
        """Whether one image is faster with all weights, also those that are zero."""
        return False


def _reads(layer: Operation) -> Flags:
    """Whether output `o` reads channel `i`, as (o, i)."""
    weight, groups = layer.tensors["weight"], layer.attributes.get("groups", 1)
    used: Flags = (weight != 0).reshape(*weight.shape[:2], -1).any(axis=2)
    of_group = np.ones((len(used) // groups, used.shape[1]), bool)
    return np.tile(used, groups) & np.kron(np.eye(groups, dtype=bool), of_group)


UNFOLDED = 2**22
"""Inputs of windows that numpy gets side by side at a time."""
PIXELWISE: Mapping[str, Any] = {
    "stride": [1, 1],
    "padding": [0, 0, 0, 0],
    "dilation": [1, 1],
    "groups": 1,
}
"""Attributes of a convolution with a kernel of 1x1."""


class Conv(Layer):
    """Attributes: `stride` [2], `padding` [top, left, bottom, right], `dilation` [2], `groups`.

    Tensors: `weight` (O, I/groups, kh, kw), and optionally `bias` (O) and `plane` (O, H, W):
    constants that are added to the output at their positions, because they differ at the borders.
    """

    name = "conv"
    attributes = ("stride", "padding", "dilation", "groups")
    optional_tensors = ("bias", "plane")

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        weight, groups = checks.tensor(operation, "weight"), checks.integer(operation, "groups")
        if len(weight) != 4 or min(weight) < 1:
            raise GraphError(f"`weight` has shape {weight}, not (filters, channels, height, width)")
        filters, channels = weight[:2]
        if filters % groups or checks.image(inputs[0])[0] != channels * groups:
            raise GraphError(
                f"`weight` of shape {weight} in {groups} groups does not fit an input of shape "
                f"{inputs[0]}"
            )
        output = (filters, *count_windows(operation, inputs[0], weight[2:]))
        if "bias" in operation.tensors:
            checks.tensor(operation, "bias", (filters,))
        if "plane" in operation.tensors:
            checks.tensor(operation, "plane", output)
        return output

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        a, weight = operation.attributes, operation.tensors["weight"]
        filters, channels, *kernel = weight.shape
        groups, taps = a["groups"], channels * math.prod(kernel)
        seen = windows(padded(inputs[0], a["padding"]), kernel, a["stride"], a["dilation"])
        n, _, height, width = seen.shape[:4]
        y = np.empty((n, filters, height, width), np.result_type(inputs[0], weight))
        matrix = weight.reshape(groups, filters // groups, taps)
        rows = max(1, UNFOLDED // max(1, n * groups * taps * width))
        for top in range(0, height, rows):
            part = y[:, :, top : top + rows]
            columns = seen[:, :, top : top + rows].transpose(0, 1, 4, 5, 2, 3)
            columns = columns.reshape(n, groups, taps, part.shape[2] * width)
            part[:] = (matrix @ columns).reshape(part.shape)
        if "bias" in operation.tensors:
            y += over_channels(operation.tensors["bias"], y)
        if "plane" in operation.tensors:
            y += operation.tensors["plane"]
        return y

    def reserve(self, layout: ArenaLayout, step: Step) -> str | None:
        super().reserve(layout, step)
        if not step.inputs or (layout.along and layout.is_single(step.output)):
            return None
        source, phases = step.inputs[0], None
        if layout.along and not _is_unit_stride(step.operation):
            rows, columns = _taps(step.operation)
            count = len(rows.phases) * len(columns.phases) * layout.shapes[source][0]
            _, height, width = layout.shapes[step.output]
            source = phases = _phases_name(step)
            layout.add(source, (count, height + rows.extent, width + columns.extent))
        else:
            layout.margins[source].include(*step.operation.attributes["padding"])
        if layout.along:
            layout.tie(source, step.output)
        return phases

    def weights(self, builder: Builder, step: Step) -> tuple[Place, Array, NDArray[np.int64]]:
        operation, out = step.operation, builder.places[step.output]
        a, weight = builder.places[step.inputs[0]], operation.tensors["weight"]
        rows, columns = _taps(operation)
        single = out.height * out.width == 1
        if single:  # what its one window sees of padding is left out
            seen = rows.inside(a.height)[:, None] & columns.inside(a.width)
            weight = np.where(seen, weight, np.float32(0))
        channel = np.arange(a.channels)[:, None, None]
        if builder.along and not single and not _is_unit_stride(operation):
            a = _split_phases(builder, step, a)
            inside = rows.phase_offsets(a.pitch)[:, None] + columns.phase_offsets(builder.lanes)
            planes = rows.phase_numbers()[:, None] * len(columns.phases) + columns.phase_numbers()
            channel = planes * len(channel) + channel
        else:
            inside = rows.taps[:, None] * a.pitch + columns.taps * builder.lanes
        return a, weight, channel * a.plane + inside


def _is_unit_stride(operation: Operation) -> bool:
    """Whether the windows of neighbouring positions are neighbours: no phases are needed."""
    return tuple(operation.attributes["stride"]) == (1, 1)


def _taps(operation: Operation) -> tuple[_Taps, _Taps]:
    """Rows and columns of the window."""
    a, kernel = operation.attributes, operation.tensors["weight"].shape[2:]
    rows, columns = (
        _Taps(kernel[axis], a["stride"][axis], a["dilation"][axis], a["padding"][axis])
        for axis in (0, 1)
    )
    return rows, columns


class _Taps:
    """Rows or columns that a window touches: input = position * stride + tap."""

    def __init__(self, kernel: int, stride: int, dilation: int, padding: int) -> None:
        self.stride = stride
        self.taps = np.arange(kernel, dtype=np.int64) * dilation - padding
        self.phases: list[int] = sorted({int(tap) for tap in self.taps % stride})
        shifts = self.taps // stride
        self.first = int(shifts[0])
        self.extent = int(shifts[-1] - shifts[0])
        self._shifts = shifts

    def inside(self, size: int) -> Flags:
        """Which taps of the first window are not on the padding around `size` inputs."""
        return (self.taps >= 0) & (self.taps < size)

    def phase_numbers(self) -> NDArray[np.int64]:
        """The phase in which each tap finds its inputs."""
        return np.searchsorted(self.phases, self.taps % self.stride)

    def phase_offsets(self, distance: int) -> NDArray[np.int64]:
        """Where in its phase each tap finds them, if neighbours are `distance` apart."""
        return (self._shifts - self.first) * distance


def _phases_name(step: Step) -> str:
    """The value that holds a strided convolution's input by phases: rows and columns of one
    remainder of the stride. With its line break it cannot be a name of the graph."""
    return f"{step.output}\nphases"


def _split_phases(builder: Builder, step: Step, a: Place) -> Place:
    """Copies each phase of the input to planes of its own."""
    out, (rows, columns) = builder.places[_phases_name(step)], _taps(step.operation)
    for number, (y, x) in enumerate(product(rows.phases, columns.phases)):
        top, left = rows.first * rows.stride + y, columns.first * columns.stride + x
        how = CopyParameters(top, rows.stride, left, columns.stride)
        builder.copy(a, out.channels_from(number * a.channels, a.channels), how)
    return out


MATRIX = {"avx512": 0.12, "avx2": 0.15, "portable": 0.25}
"""From this density on, a linear layer of one image is faster as a whole matrix: what
`benchmarks/crossover.py` measured."""


class Linear(Layer):
    """Of features, or at each position of a sequence. Tensors: `weight` (O, I), `bias` (O), which
    may be absent."""

    name = "linear"
    optional_tensors = ("bias",)

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        weight = checks.tensor(operation, "weight")
        if len(inputs[0]) > 2:
            raise GraphError(
                f"its input has shape {inputs[0]}, not (features,) or (channels, positions)"
            )
        if len(weight) != 2 or weight[1] != inputs[0][0]:
            raise GraphError(
                f"`weight` of shape {weight} does not fit an input of shape {inputs[0]}"
            )
        if "bias" in operation.tensors:
            checks.tensor(operation, "bias", (weight[0],))
        return (weight[0], *inputs[0][1:])

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        x, weight = inputs[0], operation.tensors["weight"]
        y: Array = x @ weight.T if x.ndim == 2 else weight @ x
        if "bias" in operation.tensors:
            y += over_channels(operation.tensors["bias"], y)
        return y

    def weights(self, builder: Builder, step: Step) -> tuple[Place, Array, NDArray[np.int64]]:
        a, weight = builder.places[step.inputs[0]], step.operation.tensors["weight"]
        return a, weight[:, :, None, None], np.arange(a.channels)[:, None, None] * a.plane

    def is_matrix(self, builder: Builder, weight: Array, a: Place) -> bool:
        kept = int(np.count_nonzero(weight))
        return a.plane == 1 and kept > MATRIX[builder.isa] * weight.size
