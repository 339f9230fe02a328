"""Plans how the native core runs a graph: layouts, tiles, lists, all in the arrays of a `Table`.

There are two ways. With `lanes` = 1 the arena holds one image and vectors run along the positions
of a plane; with `lanes` as wide as a vector it holds that many images and vectors run across them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.errors import GraphError
from prunus_runtime.fuse import Step, clamp_of, fuse
from prunus_runtime.graph import Graph, Shape
from prunus_runtime.layout import NOTHING, Layout, Value
from prunus_runtime.lists import Lists, make_lists, plane_mask, tiles_across, tiles_along
from prunus_runtime.native import (
    ACTIVATIONS,
    ENTRY,
    KINDS,
    OPERATION,
    Table,
    lanes,
    most_vectors,
)
from prunus_runtime.windows import Windows, pool_windows

DENSE = 0.3
"""From this density on, a linear layer of one image is faster as a dense matrix."""
CACHE = 32 * 1024
"""Bytes of the fastest cache that a tile's inputs may take."""
WORTH = 24
"""Weights of a filter that are worth going over its output once more."""
SHARE = 2000
"""Vectors of work that are worth a thread."""
TILE = 6
"""Vectors of a plane that are worth going over all weights once more, in another thread."""
MOST_PARTS = 64
"""Bits of the word in which threads mark the parts that they begin."""


def make_plan(
    graph: Graph, shapes: dict[str, Shape], isa: str, across: bool, threads: int
) -> Table:
    """The table for `graph`. `across`: vectors run across images."""
    return _Planner(graph, shapes, isa, lanes(isa) if across else 1, threads).table()


class _Planner:
    def __init__(
        self, graph: Graph, shapes: dict[str, Shape], isa: str, lanes_: int, threads: int
    ) -> None:
        self.graph, self.shapes, self.isa, self.lanes = graph, shapes, isa, lanes_
        self.vector, self.most = lanes(isa), most_vectors(isa)
        self.threads = min(threads, MOST_PARTS)
        self.steps = fuse(graph, shapes)
        self.values: dict[str, Value] = {}
        self.arena = 0
        self.operations: list[tuple[Any, ...]] = []
        self.ints: list[NDArray[np.int32]] = []
        self.floats: list[NDArray[np.float32]] = []
        self.entries: list[NDArray[np.void]] = []
        self.sizes = {"ints": 0, "floats": 0, "entries": 0}

    def table(self) -> Table:
        self._lay_out()
        self._emit("load", out=self.values[self.graph.input])
        emitters: dict[str, Callable[[Step], None]] = {
            "conv": self._conv,
            "linear": self._linear,
            "max_pool": self._pool,
            "avg_pool": self._pool,
            "adaptive_avg_pool": self._pool,
            "add": self._pair,
            "multiply": self._pair,
            "affine": self._affine,
            "activation": self._activation,
            "concatenate": self._concatenate,
            "flatten": self._flatten,
            "pad": self._pad,
            "slice": self._slice,
            "softmax": self._softmax,
        }
        for step in self.steps:
            if step.operation.kind not in emitters:
                layer = f" of layer {step.operation.layer}" if step.operation.layer else ""
                raise GraphError(
                    f"the runtime does not know the operation {step.operation.kind}{layer}"
                )
            emitters[step.operation.kind](step)
        self._emit("store", a=self.values[self.graph.output])
        # Poolings and copies that take every second element load what is between and behind.
        self.arena += 2 * self.vector
        if self.arena >= 2**31:
            raise GraphError(
                f"the activations of {self.lanes} images take {self.arena * 4 / 2**30:.0f} GiB; "
                "the runtime's limit is 8"
            )
        return Table(
            *(self.isa, self.lanes, self.arena),
            math.prod(self.graph.input_shape),
            math.prod(self.shapes[self.graph.output]),
            np.array(self.operations, OPERATION),
            np.concatenate([np.zeros(1, np.int32), *self.ints]),
            np.concatenate([np.zeros(1, np.float32), *self.floats]),
            np.concatenate([np.zeros(1, ENTRY), *self.entries]),
        )

    # Where values lie

    def _lay_out(self) -> None:
        layout = Layout(self.lanes, self.vector)
        layout.add(self.graph.input, self.graph.input_shape)
        lifetimes = {self.graph.input: [0, 0]}
        for time, step in enumerate(self.steps, 1):
            layout.add(step.output, self.shapes[step.output])
            lifetimes[step.output] = [time, time]
            for name in step.reads:
                lifetimes[name][1] = time
            if step.operation.kind == "conv" and not self._is_single(step):
                source = step.inputs[0]
                if self.lanes == 1 and not self._is_unit_stride(step):
                    source = _phases(step)
                    layout.add(source, self._phase_shape(step))
                    lifetimes[source] = [time, time]
                else:
                    layout.margins[source].include(*step.operation.attributes["padding"])
                if self.lanes == 1:
                    layout.margins[step.output].vectors = True
                    layout.tie(source, step.output, *[step.residual] if step.residual else [])
            elif step.operation.kind == "conv" and self.lanes > 1:
                layout.margins[step.inputs[0]].include(*step.operation.attributes["padding"])
        lifetimes[self.graph.output][1] = len(self.steps) + 1
        for time, step in enumerate(self.steps, 1):
            # A sum takes the place of what is added to, if nobody reads that any more: not even
            # this convolution, whose other filters would see the sum.
            last = step.residual and lifetimes[step.residual][1] == time
            if step.residual and last and step.residual not in step.inputs:
                layout.share(step.output, step.residual)
        self.values, self.arena = layout.place({n: (a, b) for n, (a, b) in lifetimes.items()})

    def _is_single(self, step: Step) -> bool:
        """Whether a convolution has one output position and is done as a linear layer is."""
        return self.shapes[step.output][1:] == (1, 1)

    def _is_unit_stride(self, step: Step) -> bool:
        return tuple(step.operation.attributes["stride"]) == (1, 1)

    def _phase_shape(self, step: Step) -> Shape:
        """Planes that hold rows and columns of one remainder of the stride, padding included."""
        _, height, width = self.shapes[step.output]
        rows, columns = self._taps(step)
        phases = len(rows.phases) * len(columns.phases)
        channels = self.shapes[step.inputs[0]][0]
        return (phases * channels, height + rows.extent, width + columns.extent)

    def _taps(self, step: Step) -> tuple[_Taps, _Taps]:
        attributes, kernel = step.operation.attributes, step.operation.tensors["weight"].shape[2:]
        top, left = attributes["padding"][:2]
        return (
            _Taps(kernel[0], attributes["stride"][0], attributes["dilation"][0], top),
            _Taps(kernel[1], attributes["stride"][1], attributes["dilation"][1], left),
        )

    # The table

    def _pool_of(self, name: str, *arrays: NDArray[Any]) -> int:
        """Adds constants to a pool; gives back where they begin. The pools begin with one unused
        element, so that they are never empty."""
        begin = self.sizes[name] + 1
        getattr(self, name).extend(arrays)
        self.sizes[name] += sum(len(array) for array in arrays)
        return begin

    def _emit(
        self,
        kind: str,
        *,
        a: Value = NOTHING,
        b: Value = NOTHING,
        out: Value = NOTHING,
        items: int | None = None,
        work: int | None = None,
        p: Sequence[int] = (),
        ints: Sequence[NDArray[np.int32]] = (),
        floats: Sequence[NDArray[np.float32]] = (),
        entries: NDArray[np.void] | None = None,
        bounds: tuple[float, float] = (-math.inf, math.inf),
    ) -> None:
        bands, value = 1, a if kind == "store" else out
        if work is None:
            work = 2 * value.channels * value.height * max(1, value.width * self.lanes // self.vector)
        parts = self._parts(work)
        if items is None:
            bands = parts if value.height >= 2 * parts else 1
            items = value.channels * bands
        self.operations.append(
            (
                *(KINDS.index(kind), items, max(1, min(parts, items)), bands),
                *(astuple(a), astuple(b), astuple(out)),
                tuple(p) + (0,) * (8 - len(p)),
                self._pool_of("ints", *ints),
                self._pool_of("floats", *floats),
                self._pool_of("entries", *([] if entries is None else [entries])),
                *bounds,
            )
        )

    def _parts(self, work: int) -> int:
        """How many threads an operation of so many vectors of work is worth."""
        return max(1, min(self.threads, work // SHARE))

    # Convolutions and linear layers

    def _conv(self, step: Step) -> None:
        attributes, weight = step.operation.attributes, step.operation.tensors["weight"]
        a, groups = self.values[step.inputs[0]], attributes["groups"]
        rows, columns = self._taps(step)
        single = self._is_single(step)
        if self.lanes == 1 and not single and not self._is_unit_stride(step):
            a = self._split_phases(step, a)
            base = rows.phase_offsets(a.pitch)[:, None] + columns.phase_offsets(1)[None]
            planes = rows.phase_numbers()[:, None] * len(columns.phases) + columns.phase_numbers()
            channel = np.arange(self.shapes[step.inputs[0]][0])[:, None, None]
            offsets = (planes * len(channel) + channel) * a.plane + base
        else:
            channel = np.arange(a.channels)[:, None, None] * a.plane
            offsets = channel + (rows.taps[:, None] * a.pitch + columns.taps * self.lanes)
        if single:
            weight = _inside(weight, rows.taps, columns.taps, a)
        lists = make_lists(weight, groups, offsets)
        if single and self.lanes == 1:
            self._single(step, a, lists)
        elif self.lanes == 1:
            self._along(step, a, lists)
        else:
            distances = attributes["stride"][0] * a.pitch, attributes["stride"][1] * self.lanes
            self._across(step, a, lists, *distances)

    def _linear(self, step: Step) -> None:
        weight = step.operation.tensors["weight"]
        a = self.values[step.inputs[0]]
        offsets = (np.arange(a.channels) * a.plane)[:, None, None]
        lists = make_lists(weight[:, :, None, None], 1, offsets)
        if self.lanes > 1:
            self._across(step, a, lists, 0, self.lanes)
        elif a.plane == 1 and len(lists.entries) > DENSE * weight.size:
            self._single(step, a, lists, weight)
        else:
            self._single(step, a, lists)

    def _split_phases(self, step: Step, a: Value) -> Value:
        out = self.values[_phases(step)]
        rows, columns = self._taps(step)
        number = 0
        for y in rows.phases:
            for x in columns.phases:
                view = out.channels_from(number * a.channels, a.channels)
                start = rows.first * rows.stride + y, columns.first * columns.stride + x
                p = (start[0], rows.stride, start[1], columns.stride)
                self._emit("copy", a=a, out=view, p=p)
                number += 1
        return out

    def _common(self, step: Step) -> tuple[Value, Value, NDArray[np.float32]]:
        out = self.values[step.output]
        b = NOTHING if step.residual is None else self.values[step.residual]
        bias = step.operation.tensors.get("bias", np.zeros(out.channels, np.float32))
        return b, out, np.ascontiguousarray(bias, np.float32)

    def _single(
        self, step: Step, a: Value, lists: Lists, dense: NDArray[np.float32] | None = None
    ) -> None:
        b, out, bias = self._common(step)
        if "plane" in step.operation.tensors:
            bias = bias + step.operation.tensors["plane"].reshape(-1)
        work = len(lists.entries) if dense is None else dense.size // self.vector
        blocks = lists.blocks(self._parts(work))
        self._emit(
            "linear" if dense is None else "dense",
            a=a,
            b=b,
            out=out,
            items=len(blocks) - 1,
            work=work,
            p=(0, len(blocks) - 1),
            ints=(lists.starts, blocks),
            floats=(bias,) if dense is None else (bias, dense.reshape(-1)),
            entries=lists.entries if dense is None else None,
            bounds=(step.low, step.high),
        )

    def _along(self, step: Step, a: Value, lists: Lists) -> None:
        b, out, bias = self._common(step)
        vectors = -(-out.height * out.pitch // self.vector)
        length = vectors * self.vector
        mask = plane_mask(out, length)
        masked = -1 if mask.all() else self._pool_of("ints", mask)
        plane = step.operation.tensors.get("plane")
        floats = [bias]
        if plane is not None:
            flat = np.zeros((out.channels, length), np.float32)
            flat[:, mask != 0] = plane.reshape(out.channels, -1)
            floats.append(flat.reshape(-1))
        work = self._work(lists, vectors)
        tiles = [
            (1, tile.columns, *[tile.x * self.vector] * 4)
            for tile in tiles_along(vectors, self.most, self._bands(work, vectors))
        ]
        p = (0, self.vector, masked, plane is not None, length, 0)
        longest = max(tile[1] for tile in tiles) * self.vector
        passes = self._passes(lists, longest + lists.reach_within_plane(a))
        if passes == 1:
            self._tiled((a, b, out), lists, tiles, p, floats, length, (step.low, step.high))
            return
        nothing = (0, self.vector, masked, False, length, 0)
        zeros = [np.zeros(out.channels, np.float32)]
        for number, part in enumerate(lists.split(passes)):
            bounds = (step.low, step.high) if number == passes - 1 else (-math.inf, math.inf)
            first = number == 0
            values = (a, b if first else out, out)
            p, floats = (p, floats) if first else (nothing, zeros)
            self._tiled(values, part, tiles, p, floats, length, bounds)

    def _passes(self, lists: Lists, length: int) -> int:
        """How often to go over the output, each time with some of the input channels: so that what
        all filters read at a tile stays in the fastest cache, unless too few weights are left for
        each time."""
        footprint = len(np.unique(lists.channels)) * length * 4
        return max(1, min(-(-footprint // CACHE), len(lists.entries) // lists.filters // WORTH))

    def _across(self, step: Step, a: Value, lists: Lists, row: int, column: int) -> None:
        b, out, bias = self._common(step)
        plane = step.operation.tensors.get("plane")
        floats = [bias] if plane is None else [bias, plane.reshape(-1)]
        vectors = out.height * out.width
        bands = min(self._bands(self._work(lists, vectors), vectors), out.height)
        tiles = [
            (
                *(tile.rows, tile.columns, tile.y * row + tile.x * column),
                *(tile.y * v.pitch + tile.x * self.lanes for v in (out, b)),
                tile.y * out.width + tile.x,
            )
            for tile in tiles_across(out.height, out.width, self.most, bands)
        ]
        p = (row, column, -1, plane is not None, out.height * out.width, out.width)
        self._tiled((a, b, out), lists, tiles, p, floats, 0, (step.low, step.high))

    def _work(self, lists: Lists, vectors: int) -> int:
        return (len(lists.entries) + 2 * lists.filters) * (vectors + 2)

    def _bands(self, work: int, vectors: int) -> int:
        """How many threads share a plane; 1 if they had better share the filters."""
        parts = self._parts(work)
        return parts if vectors >= TILE * parts else 1

    def _tiled(
        self,
        values: tuple[Value, Value, Value],
        lists: Lists,
        tiles: list[tuple[int, ...]],
        p: tuple[int, ...],
        floats: list[NDArray[np.float32]],
        length: int,
        bounds: tuple[float, float],
    ) -> None:
        a, b, out = values
        vectors = sum(tile[0] * tile[1] for tile in tiles)
        work = self._work(lists, vectors)
        shared = self._bands(work, vectors) > 1
        blocks = lists.blocks(1 if shared else self._parts(work))
        # Vectors along a plane read a little behind its end; the results are masked.
        self.arena = max(self.arena, a.offset + lists.reach[1] + length)
        assert a.offset + lists.reach[0] >= 0
        self._emit(
            "conv",
            a=a,
            b=b,
            out=out,
            items=len(tiles) * (len(blocks) - 1),
            work=work,
            p=(len(tiles), len(blocks) - 1, *p),
            ints=(lists.starts, blocks, np.array(tiles, np.int32).reshape(-1)),
            floats=floats,
            entries=lists.entries,
            bounds=bounds,
        )

    # Everything else

    def _pool(self, step: Step) -> None:
        a, out = self.values[step.inputs[0]], self.values[step.output]
        rows, columns = (
            pool_windows(step.operation, axis, size, count)
            for axis, size, count in ((0, a.height, out.height), (1, a.width, out.width))
        )
        begin, end = columns.whole
        largest = step.operation.kind == "max_pool"
        self._emit(
            "max_pool" if largest else "avg_pool",
            a=a,
            out=out,
            p=(rows.step, columns.step, begin, end, columns.stride, columns.taps),
            ints=(_edges(rows), _edges(columns)),
            floats=() if largest else (rows.factors, columns.factors),
        )

    def _pair(self, step: Step) -> None:
        a, b = (self.values[name] for name in step.inputs)
        out = self.values[step.output]
        spread = (b.height, b.width) != (a.height, a.width)
        self._emit(step.operation.kind, a=a, b=b, out=out, p=(spread,))

    def _affine(self, step: Step) -> None:
        a, out = self.values[step.inputs[0]], self.values[step.output]
        tensors = step.operation.tensors
        scale = tensors.get("scale", np.ones(out.channels, np.float32))
        shift = tensors.get("shift", np.zeros(out.channels, np.float32))
        self._emit("affine", a=a, out=out, floats=(scale, shift))

    def _activation(self, step: Step) -> None:
        a, out = self.values[step.inputs[0]], self.values[step.output]
        bounds = clamp_of(step.operation)
        kind = "clamp" if bounds else step.operation.attributes["kind"]
        slope = float(step.operation.attributes.get("slope", 0))
        p = (ACTIVATIONS.index(kind),)
        self._emit("activation", a=a, out=out, p=p, bounds=bounds or (slope, 0.0))

    def _concatenate(self, step: Step) -> None:
        out, start = self.values[step.output], 0
        for name in step.inputs:
            a = self.values[name]
            self._emit("copy", a=a, out=out.channels_from(start, a.channels), p=(0, 1, 0, 1))
            start += a.channels

    def _flatten(self, step: Step) -> None:
        a, out = self.values[step.inputs[0]], self.values[step.output]
        shape = (a.channels, a.height, a.width)
        self._emit("copy", a=a, out=out.as_planes(shape, self.lanes), p=(0, 1, 0, 1))

    def _pad(self, step: Step) -> None:
        a, out = self.values[step.inputs[0]], self.values[step.output]
        before, after = step.operation.attributes["channels"]
        top, left = step.operation.attributes["padding"][:2]
        for start, count in ((0, before), (before + a.channels, after)):
            if count:
                view = out.channels_from(start, count)
                self._emit("copy", a=a, out=view, p=(a.height, 1, 0, 1))
        view = out.channels_from(before, a.channels)
        self._emit("copy", a=a, out=view, p=(-top, 1, -left, 1))

    def _slice(self, step: Step) -> None:
        a, out = self.values[step.inputs[0]], self.values[step.output]
        start, by = step.operation.attributes["start"], step.operation.attributes["step"]
        view = a.channels_from(start[0], out.channels, by[0])
        self._emit("copy", a=view, out=out, p=(start[1], by[1], start[2], by[2]))

    def _softmax(self, step: Step) -> None:
        a, out = self.values[step.inputs[0]], self.values[step.output]
        self._emit("softmax", a=a, out=out, items=1, p=(bool(step.operation.attributes["log"]),))


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


def _phases(step: Step) -> str:
    """The name of the value that holds a strided convolution's input by phases: no name of a graph
    can be that, since it has a line break."""
    return f"{step.output}\nphases"


def _inside(
    weight: NDArray[np.float32], rows: NDArray[np.int64], columns: NDArray[np.int64], a: Value
) -> NDArray[np.float32]:
    """The weights of a window with one position, those on padding removed."""
    seen = ((rows >= 0) & (rows < a.height))[:, None] & ((columns >= 0) & (columns < a.width))
    return np.where(seen, weight, np.float32(0))


def _edges(windows: Windows) -> NDArray[np.int32]:
    return np.stack([windows.begin, windows.end], 1).reshape(-1).astype(np.int32)
