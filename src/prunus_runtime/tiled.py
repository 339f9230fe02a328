"""Layers as tiles of vectors, whose sums stay in registers while a filter's list is walked."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from prunus_runtime.builder import Builder
from prunus_runtime.fuse import Step
from prunus_runtime.graph import Array
from prunus_runtime.layout import NOTHING, Value
from prunus_runtime.lists import Lists, plane_mask, tiles_across, tiles_along

CACHE = 32 * 1024
"""Bytes of the fastest cache that a tile's inputs may take."""
WORTH, WORTH_ACROSS = 12, 32
"""Weights of a filter that are worth going over its output once more: with vectors along a plane,
and with vectors across images, where the output is larger."""
TILE = 6
"""Vectors of a plane that are worth going over all weights once more, in another thread."""


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


def emit_across(
    builder: Builder, step: Step, a: Value, lists: Lists, row: int, column: int
) -> None:
    """Each vector is one position of all images."""
    b, out = residual_of(builder, step), builder.values[step.output]
    floats = [bias_of(step, lists)]
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


def emit_along(builder: Builder, step: Step, a: Value, lists: Lists) -> None:
    """Vectors follow each other through the plane, as if it were one long row; what they compute
    between its rows is masked."""
    b, out = residual_of(builder, step), builder.values[step.output]
    vectors = -(-out.height * out.pitch // builder.vector)
    length = vectors * builder.vector
    mask = plane_mask(out, builder.lanes, length)
    floats = [bias_of(step, lists)]
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


def residual_of(builder: Builder, step: Step) -> Value:
    """What is added to the layer's result."""
    return NOTHING if step.residual is None else builder.values[step.residual]


def bias_of(step: Step, lists: Lists) -> Array:
    """One number for each filter."""
    bias = step.operation.tensors.get("bias", np.zeros(lists.filters, np.float32))
    return np.ascontiguousarray(bias, np.float32)
