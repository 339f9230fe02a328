"""Plans convolutions and linear layers: lists of kept weights, and the tiles that walk them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.builder import Builder
from prunus_runtime.fuse import Step
from prunus_runtime.graph import Array, Shape
from prunus_runtime.layout import NOTHING, Layout, Value
from prunus_runtime.lists import Lists, make_lists, plane_mask, tiles_across, tiles_along

DENSE = 0.3
"""From this density on, a linear layer of one image is faster as a dense matrix."""
CACHE = 32 * 1024
"""Bytes of the fastest cache that a tile's inputs may take."""
WORTH, WORTH_ACROSS = 12, 32
"""Weights of a filter that are worth going over its output once more; more where the output of one
image after the other is larger, since vectors run across images."""
TILE = 6
"""Vectors of a plane that are worth going over all weights once more, in another thread."""


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
    if along and not _is_unit_stride(step):
        source = phases = _phases(step)
        layout.add(source, _phase_shape(step, shapes))
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
        a, (rows, columns) = builder.values[step.inputs[0]], _taps(step)
        channel = np.arange(a.channels)[:, None, None]
        if builder.along and not single and not _is_unit_stride(step):
            a = _split_phases(builder, step, a)
            inside = rows.phase_offsets(a.pitch)[:, None] + columns.phase_offsets(builder.lanes)
            planes = rows.phase_numbers()[:, None] * len(columns.phases) + columns.phase_numbers()
            offsets = (planes * len(channel) + channel) * a.plane + inside
        else:
            inside = rows.taps[:, None] * a.pitch + columns.taps * builder.lanes
            offsets = channel * a.plane + inside
        if single:
            weight = _inside(weight, rows.taps, columns.taps, a)
        lists = make_lists(weight, attributes["groups"], offsets)
        row, column = attributes["stride"][0] * a.pitch, attributes["stride"][1] * builder.lanes
    if not builder.along:
        _across(builder, step, a, lists, row, column)
    elif not single or builder.lanes > 1:
        _along(builder, step, a, lists)
    else:
        dense = linear and a.plane == 1 and len(lists.entries) > DENSE * weight.size
        _alone(builder, step, a, lists, weight if dense else None)


def _split_phases(builder: Builder, step: Step, a: Value) -> Value:
    """Copies rows and columns of one remainder of the stride to planes of their own."""
    out, (rows, columns) = builder.values[_phases(step)], _taps(step)
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
    bias = _bias(step, lists)
    if "plane" in step.operation.tensors:
        bias = bias + step.operation.tensors["plane"].reshape(-1)
    parts = builder.parts(len(lists.entries) if dense is None else dense.size // builder.vector)
    blocks = lists.blocks(parts)
    builder.emit(
        "linear" if dense is None else "dense",
        a=a,
        b=_residual(builder, step),
        out=builder.values[step.output],
        items=len(blocks) - 1,
        parts=parts,
        p=(0, len(blocks) - 1),
        ints=(lists.starts, blocks),
        floats=(bias,) if dense is None else (bias, dense.reshape(-1)),
        entries=lists.entries if dense is None else None,
        bounds=(step.low, step.high),
    )


@dataclass(frozen=True)
class _Tiled:
    """A convolution as tiles of vectors: the fields are those of CONV in `native/table.h`."""

    a: Value
    b: Value
    out: Value
    tiles: list[tuple[int, ...]]
    floats: list[Array]
    bounds: tuple[float, float]
    parts: int
    bands: int
    """Of the parts that threads take: 1 if these share the filters, else they share the tiles."""
    row: int = 0
    column: int = 0
    mask: int = -1
    plane: int = 0
    plane_row: int = 0
    behind: int = 0
    """How far behind the end of its input a tile may read."""

    def emit(self, builder: Builder, lists: Lists) -> None:
        blocks = lists.blocks(1 if self.bands > 1 else self.parts)
        assert self.a.offset + lists.reach[0] >= 0
        builder.arena = max(builder.arena, self.a.offset + lists.reach[1] + self.behind)
        tiles, filters, planes = len(self.tiles), len(blocks) - 1, len(self.floats) > 1
        builder.emit(
            "conv",
            a=self.a,
            b=self.b,
            out=self.out,
            items=tiles * filters,
            parts=self.parts,
            p=(
                *(tiles, filters, self.row, self.column, self.mask, planes, self.plane),
                self.plane_row,
            ),
            ints=(lists.starts, blocks, np.array(self.tiles, np.int32).reshape(-1)),
            floats=self.floats,
            entries=lists.entries,
            bounds=self.bounds,
        )


def _across(builder: Builder, step: Step, a: Value, lists: Lists, row: int, column: int) -> None:
    """Each vector is one position of all images."""
    b, out = _residual(builder, step), builder.values[step.output]
    floats = [_bias(step, lists)]
    if "plane" in step.operation.tensors:
        floats.append(step.operation.tensors["plane"].reshape(-1))
    parts, bands = _shared(builder, lists, out.height * out.width)
    cut = tiles_across(out.height, out.width, builder.most, min(bands, out.height))
    tiles = [
        (
            *(tile.rows, tile.columns, tile.y * row + tile.x * column),
            *(tile.y * v.pitch + tile.x * builder.lanes for v in (out, b)),
            tile.y * out.width + tile.x,
        )
        for tile in cut
    ]
    whole = _Tiled(
        *(a, b, out, tiles, floats, (step.low, step.high), parts, bands, row, column),
        plane=out.height * out.width,
        plane_row=out.width,
    )
    windows = [_seen(step, tile.rows, tile.columns) for tile in cut]
    passes = _passes(step, lists, max(windows) * builder.lanes, WORTH_ACROSS)
    _emit_in_passes(builder, whole, lists, passes)


def _along(builder: Builder, step: Step, a: Value, lists: Lists) -> None:
    """Vectors follow each other through the plane, as if it were one long row; what they compute
    between its rows is masked."""
    b, out = _residual(builder, step), builder.values[step.output]
    vectors = -(-out.height * out.pitch // builder.vector)
    length = vectors * builder.vector
    mask = plane_mask(out, builder.lanes, length)
    floats = [_bias(step, lists)]
    if "plane" in step.operation.tensors:
        flat = np.zeros((out.channels, length), np.float32)
        plane = step.operation.tensors["plane"].reshape(out.channels, -1)
        flat[:, mask != 0] = np.repeat(plane, builder.lanes, axis=1)
        floats.append(flat.reshape(-1))
    parts, bands = _shared(builder, lists, vectors)
    tiles = [
        (1, tile.columns, *[tile.x * builder.vector] * 4)
        for tile in tiles_along(vectors, builder.most, bands)
    ]
    whole = _Tiled(
        *(a, b, out, tiles, floats, (step.low, step.high), parts, bands),
        column=builder.vector,
        mask=-1 if mask.all() else builder.add("ints", mask),
        plane=length,
        behind=length,
    )
    longest = max(tile[1] for tile in tiles) * builder.vector
    passes = _passes(step, lists, longest + lists.reach_within_plane(a), WORTH)
    _emit_in_passes(builder, whole, lists, passes)


def _emit_in_passes(builder: Builder, whole: _Tiled, lists: Lists, passes: int) -> None:
    """Each pass adds what some of the input channels contribute; the last one also clamps."""
    tiled, nothing = whole, np.zeros(lists.filters, np.float32)
    for number, part in enumerate(lists.split(passes), 1):
        bounds = whole.bounds if number == passes else (-math.inf, math.inf)
        replace(tiled, bounds=bounds).emit(builder, part)
        in_place = [(*tile[:4], tile[3], tile[5]) for tile in whole.tiles]
        tiled = replace(whole, b=whole.out, tiles=in_place, floats=[nothing])


def _passes(step: Step, lists: Lists, seen: int, worth: int) -> int:
    """How often to go over the output, each time with some of the input channels: so that what all
    filters read at a tile (`seen` floats of each channel) stays in the fastest cache, unless less
    weights of a filter are left for each time than it is worth. Filters of groups read few
    channels anyway."""
    if step.operation.attributes.get("groups", 1) > 1:
        return 1
    footprint = len(np.unique(lists.channels)) * seen * 4
    return max(1, min(-(-footprint // CACHE), len(lists.entries) // max(1, lists.filters) // worth))


def _seen(step: Step, rows: int, columns: int) -> int:
    """Positions of a channel that so many output positions read."""
    if step.operation.kind == "linear":
        return 1
    stride, dilation = step.operation.attributes["stride"], step.operation.attributes["dilation"]
    kernel = step.operation.tensors["weight"].shape[2:]
    return math.prod(
        (n - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1
        for i, n in enumerate((rows, columns))
    )


def _shared(builder: Builder, lists: Lists, vectors: int) -> tuple[int, int]:
    """How many threads share a layer, and how many of these its plane of so many vectors: all; or
    one, if they had better share the filters."""
    parts = builder.parts((len(lists.entries) + 2 * lists.filters) * (vectors + 2))
    return parts, parts if vectors >= TILE * parts else 1


def _residual(builder: Builder, step: Step) -> Value:
    return NOTHING if step.residual is None else builder.values[step.residual]


def _bias(step: Step, lists: Lists) -> Array:
    bias = step.operation.tensors.get("bias", np.zeros(lists.filters, np.float32))
    return np.ascontiguousarray(bias, np.float32)


def _is_single(step: Step, shapes: dict[str, Shape]) -> bool:
    """Whether there is one output position: no need to look for the next ones."""
    return math.prod(shapes[step.output][1:]) == 1


def _is_unit_stride(step: Step) -> bool:
    return tuple(step.operation.attributes["stride"]) == (1, 1)


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

    def phase_numbers(self) -> NDArray[np.int64]:
        return np.searchsorted(self.phases, self.taps % self.stride)

    def phase_offsets(self, distance: int) -> NDArray[np.int64]:
        return (self._shifts - self.first) * distance


def _taps(step: Step) -> tuple[_Taps, _Taps]:
    attributes = step.operation.attributes
    kernel = step.operation.tensors["weight"].shape[2:]
    top, left = attributes["padding"][:2]
    return (
        _Taps(kernel[0], attributes["stride"][0], attributes["dilation"][0], top),
        _Taps(kernel[1], attributes["stride"][1], attributes["dilation"][1], left),
    )


def _phases(step: Step) -> str:
    """The name of the value that holds a strided convolution's input by phases: no name of a graph
    can be that, since it has a line break."""
    return f"{step.output}\nphases"


def _phase_shape(step: Step, shapes: dict[str, Shape]) -> Shape:
    """Planes that hold rows and columns of one remainder of the stride, padding included."""
    _, height, width = shapes[step.output]
    rows, columns = _taps(step)
    phases = len(rows.phases) * len(columns.phases)
    channels = shapes[step.inputs[0]][0]
    return (phases * channels, height + rows.extent, width + columns.extent)


def _inside(weight: Array, rows: NDArray[np.int64], columns: NDArray[np.int64], a: Value) -> Array:
    """The weights of a window with one position, those on padding removed."""
    seen = ((rows >= 0) & (rows < a.height))[:, None] & ((columns >= 0) & (columns < a.width))
    return np.where(seen, weight, np.float32(0))
