"""Plans convolutions and linear layers: what they need of the layout, and lists of weights."""

from __future__ import annotations

import math

import numpy as np

from prunus_runtime.builder import Builder
from prunus_runtime.fuse import Step
from prunus_runtime.graph import Array, Shape
from prunus_runtime.layout import Layout, Value
from prunus_runtime.lists import Lists, make_lists
from prunus_runtime.taps import is_unit_stride, on_plane, phase_shape, phases_name, taps
from prunus_runtime.tiled import bias_of, emit_across, emit_along, residual_of

DENSE = 0.3
"""From this density on, a linear layer of one image is faster as a dense matrix."""


def reserve(layout: Layout, step: Step, shapes: dict[str, Shape]) -> str | None:
    """Says what a layer needs of the values that it reads and writes. Gives back the name of one it
    needs besides, if it does: its input by the phases of its stride."""
    along = layout.lanes < layout.vector
    if along and (layout.lanes > 1 or not _is_single(step, shapes)):
        layout.margins[step.output].vectors = True
        if step.residual:
            layout.tie(step.output, step.residual)
    if step.operation.kind != "conv" or not step.inputs:
        return None
    source, phases = step.inputs[0], None
    if along and _is_single(step, shapes):
        return None
    if along and not is_unit_stride(step):
        source = phases = phases_name(step)
        layout.add(source, phase_shape(step, shapes))
    else:
        layout.margins[source].include(*step.operation.attributes["padding"])
    if along:
        layout.tie(source, step.output)
    return phases


def convolve(builder: Builder, step: Step, shapes: dict[str, Shape]) -> None:
    """Adds the operations of a convolution or linear layer."""
    weight, attributes = step.operation.tensors["weight"], step.operation.attributes
    out, linear = builder.values[step.output], step.operation.kind == "linear"
    single = linear or _is_single(step, shapes)
    row, column = 0, builder.lanes
    if not step.inputs:
        a, nothing = out, np.zeros((len(weight), 0, 1, 1), np.float32)
        lists = make_lists(nothing, 1, np.zeros((0, 1, 1), np.int64))
    elif linear:
        a = builder.values[step.inputs[0]]
        offsets = np.arange(a.channels)[:, None, None] * a.plane
        lists = make_lists(weight[:, :, None, None], 1, offsets)
    else:
        a, (rows, columns) = builder.values[step.inputs[0]], taps(step)
        channel = np.arange(a.channels)[:, None, None]
        if builder.along and not single and not is_unit_stride(step):
            a = _split_phases(builder, step, a)
            inside = rows.phase_offsets(a.pitch)[:, None] + columns.phase_offsets(builder.lanes)
            planes = rows.phase_numbers()[:, None] * len(columns.phases) + columns.phase_numbers()
            offsets = (planes * len(channel) + channel) * a.plane + inside
        else:
            inside = rows.taps[:, None] * a.pitch + columns.taps * builder.lanes
            offsets = channel * a.plane + inside
        if single:
            weight = on_plane(weight, rows.taps, columns.taps, a)
        lists = make_lists(weight, attributes["groups"], offsets)
        row, column = attributes["stride"][0] * a.pitch, attributes["stride"][1] * builder.lanes
    if not builder.along:
        emit_across(builder, step, a, lists, row, column)
    elif not single or builder.lanes > 1:
        emit_along(builder, step, a, lists)
    else:
        dense = linear and a.plane == 1 and len(lists.entries) > DENSE * weight.size
        _alone(builder, step, a, lists, weight if dense else None)


def _split_phases(builder: Builder, step: Step, a: Value) -> Value:
    """Copies rows and columns of one remainder of the stride to planes of their own."""
    out, (rows, columns) = builder.values[phases_name(step)], taps(step)
    number = 0
    for y in rows.phases:
        for x in columns.phases:
            view = out.channels_from(number * a.channels, a.channels)
            start = rows.first * rows.stride + y, columns.first * columns.stride + x
            builder.emit("copy", a=a, out=view, p=(start[0], rows.stride, start[1], columns.stride))
            number += 1
    return out


def _alone(builder: Builder, step: Step, a: Value, lists: Lists, dense: Array | None) -> None:
    """One output position of one image: sums of products, without vectors of positions."""
    bias = bias_of(step, lists)
    if "plane" in step.operation.tensors:
        bias = bias + step.operation.tensors["plane"].reshape(-1)
    parts = builder.parts(len(lists.entries) if dense is None else dense.size // builder.vector)
    blocks = lists.blocks(parts)
    builder.emit(
        "linear" if dense is None else "dense",
        a=a,
        b=residual_of(builder, step),
        out=builder.values[step.output],
        items=len(blocks) - 1,
        parts=parts,
        p=(0, len(blocks) - 1),
        ints=(lists.starts, blocks),
        floats=(bias,) if dense is None else (bias, dense.reshape(-1)),
        entries=lists.entries if dense is None else None,
        bounds=(step.low, step.high),
    )


def _is_single(step: Step, shapes: dict[str, Shape]) -> bool:
    """Whether there is one output position: no need to look for the next ones."""
    return math.prod(shapes[step.output][1:]) == 1
