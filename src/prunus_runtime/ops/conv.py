"""Convolutions over height and width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prunus_runtime import checks
from prunus_runtime.errors import GraphError
from prunus_runtime.native.interface import Place
from prunus_runtime.operation import Array, Operation, Shape
from prunus_runtime.ops.kind import over_channels
from prunus_runtime.ops.layer import Layer
from prunus_runtime.ops.windows import count_windows, padded, windows
from prunus_runtime.plan.builder import Builder, Step
from prunus_runtime.plan.layout import ArenaLayout
from prunus_runtime.plan.lists import Lists, make_lists
from prunus_runtime.plan.taps import Taps, on_plane, phase_shape, phases_name

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
        columns = seen.transpose(0, 1, 4, 5, 2, 3).reshape(n, groups, taps, height * width)
        y = weight.reshape(groups, filters // groups, taps) @ columns
        y = y.reshape(n, filters, height, width)
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
            source = phases = phases_name(step)
            channels = layout.shapes[step.inputs[0]][0]
            size = layout.shapes[step.output][1:]
            layout.add(source, phase_shape(*_taps(step.operation), channels, *size))
        else:
            layout.margins[source].include(*step.operation.attributes["padding"])
        if layout.along:
            layout.tie(source, step.output)
        return phases

    def weights(self, builder: Builder, step: Step) -> tuple[Place, Lists]:
        operation, out = step.operation, builder.places[step.output]
        a, weight = builder.places[step.inputs[0]], operation.tensors["weight"]
        single = out.height * out.width == 1
        rows, columns = _taps(operation)
        channel = np.arange(a.channels)[:, None, None]
        if builder.along and not single and not _is_unit_stride(operation):
            a = _split_phases(builder, step, a)
            inside = rows.phase_offsets(a.pitch)[:, None] + columns.phase_offsets(builder.lanes)
            planes = rows.phase_numbers()[:, None] * len(columns.phases) + columns.phase_numbers()
            offsets = (planes * len(channel) + channel) * a.plane + inside
        else:
            inside = rows.taps[:, None] * a.pitch + columns.taps * builder.lanes
            offsets = channel * a.plane + inside
        if single:
            weight = on_plane(weight, rows.taps, columns.taps, a)
        return a, make_lists(weight, operation.attributes["groups"], offsets)


def _is_unit_stride(operation: Operation) -> bool:
    """Whether the windows of neighbouring positions are neighbours: no phases are needed."""
    return tuple(operation.attributes["stride"]) == (1, 1)


def _taps(operation: Operation) -> tuple[Taps, Taps]:
    """Rows and columns of the window."""
    a, kernel = operation.attributes, operation.tensors["weight"].shape[2:]
    rows, columns = (
        Taps(kernel[axis], a["stride"][axis], a["dilation"][axis], a["padding"][axis])
        for axis in (0, 1)
    )
    return rows, columns


def _split_phases(builder: Builder, step: Step, a: Place) -> Place:
    """Copies rows and columns of one remainder of the stride to planes of their own."""
    out, (rows, columns) = builder.places[phases_name(step)], _taps(step.operation)
    number = 0
    for y in rows.phases:
        for x in columns.phases:
            builder.copy(
                a,
                out.channels_from(number * a.channels, a.channels),
                top=rows.first * rows.stride + y,
                row_step=rows.stride,
                left=columns.first * columns.stride + x,
                column_step=columns.stride,
            )
            number += 1
    return out
