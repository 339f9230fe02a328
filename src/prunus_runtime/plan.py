"""Plans how the native core runs a graph: where values lie, and a table of operations on them.

A chunk is as many images as the arena holds at a time, its `lanes`. With one, or a few, vectors run
along the positions of a plane; with as many as a vector has elements, each is one position of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.builder import Builder
from prunus_runtime.convolutions import convolve, reserve
from prunus_runtime.errors import GraphError
from prunus_runtime.fuse import Step, clamp_of, fuse
from prunus_runtime.graph import Graph, Shape
from prunus_runtime.layout import Layout
from prunus_runtime.native import ACTIVATIONS, Table
from prunus_runtime.windows import Windows, pool_windows


def make_plan(graph: Graph, shapes: dict[str, Shape], isa: str, lanes: int, threads: int) -> Table:
    """The table for `graph`, for chunks of `lanes` images: 1, 2, 4, ... up to a vector's size."""
    builder, steps = Builder(isa, lanes, threads), fuse(graph, shapes)
    _lay_out(builder, graph, shapes, steps)
    builder.emit("load", out=builder.values[graph.input])
    for step in steps:
        kind = step.operation.kind
        if kind in ("conv", "linear"):
            convolve(builder, step, shapes)
        elif kind in _EMITTERS:
            _EMITTERS[kind](builder, step)
        else:
            layer = f" of layer {step.operation.layer}" if step.operation.layer else ""
            raise GraphError(f"the runtime does not know the operation {kind}{layer}")
    builder.emit("store", a=builder.values[graph.output])
    return builder.table(math.prod(graph.input_shape), math.prod(shapes[graph.output]))


def arena_size(graph: Graph, shapes: dict[str, Shape], isa: str, lanes: int, threads: int) -> int:
    """Floats of the activations of a chunk of `lanes` images."""
    builder = Builder(isa, lanes, threads)
    _lay_out(builder, graph, shapes, fuse(graph, shapes))
    return builder.arena


def _lay_out(builder: Builder, graph: Graph, shapes: dict[str, Shape], steps: list[Step]) -> None:
    layout = Layout(builder.lanes, builder.vector)
    layout.add(graph.input, graph.input_shape)
    lifetimes = {graph.input: (0, 0)}
    for time, step in enumerate(steps, 1):
        layout.add(step.output, shapes[step.output])
        lifetimes[step.output] = (time, time)
        for name in step.reads:
            lifetimes[name] = (lifetimes[name][0], time)
        if step.operation.kind in ("conv", "linear"):
            besides = reserve(layout, step, shapes)
            if besides is not None:
                lifetimes[besides] = (time, time)
    flat = {step.output for step in steps if step.operation.kind == "flatten"}
    lifetimes[graph.output] = (lifetimes[graph.output][0], len(steps) + 1)
    for time, step in enumerate(steps, 1):
        # A sum takes the place of what is added to, if nobody reads that any more: not even
        # this convolution, whose other filters would see the sum. What a flattening writes stays
        # without gaps.
        last = step.residual and lifetimes[step.residual][1] == time
        if step.residual and last and step.residual not in {*step.inputs, *flat}:
            layout.share(step.output, step.residual)
    builder.values, builder.arena = layout.place(lifetimes)
    builder.check_arena()


def _pool(builder: Builder, step: Step) -> None:
    a, out = builder.values[step.inputs[0]], builder.values[step.output]
    rows, columns = (
        pool_windows(step.operation, axis, size, count)
        for axis, size, count in ((0, a.height, out.height), (1, a.width, out.width))
    )
    begin, end = columns.whole
    largest = step.operation.kind == "max_pool"
    builder.emit(
        "max_pool" if largest else "avg_pool",
        a=a,
        out=out,
        p=(rows.step, columns.step, begin, end, columns.stride, columns.taps),
        ints=(_edges(rows), _edges(columns)),
        floats=() if largest else (rows.factors, columns.factors),
    )


def _pair(builder: Builder, step: Step) -> None:
    a, b = (builder.values[name] for name in step.inputs)
    out = builder.values[step.output]
    spread = (b.height, b.width) != (a.height, a.width)
    builder.emit(step.operation.kind, a=a, b=b, out=out, p=(spread,))


def _affine(builder: Builder, step: Step) -> None:
    a, out = builder.values[step.inputs[0]], builder.values[step.output]
    tensors = step.operation.tensors
    scale = tensors.get("scale", np.ones(out.channels, np.float32))
    shift = tensors.get("shift", np.zeros(out.channels, np.float32))
    builder.emit("affine", a=a, out=out, floats=(scale, shift))


def _activation(builder: Builder, step: Step) -> None:
    a, out = builder.values[step.inputs[0]], builder.values[step.output]
    bounds = clamp_of(step.operation)
    kind = "clamp" if bounds else step.operation.attributes["kind"]
    slope = float(step.operation.attributes.get("slope", 0))
    p = (ACTIVATIONS.index(kind),)
    builder.emit("activation", a=a, out=out, p=p, bounds=bounds or (slope, 0.0))


def _concatenate(builder: Builder, step: Step) -> None:
    out, start = builder.values[step.output], 0
    for name in step.inputs:
        a = builder.values[name]
        builder.emit("copy", a=a, out=out.channels_from(start, a.channels), p=(0, 1, 0, 1))
        start += a.channels


def _flatten(builder: Builder, step: Step) -> None:
    a, out = builder.values[step.inputs[0]], builder.values[step.output]
    assert out.plane == builder.lanes
    shape = (a.channels, a.height, a.width)
    builder.emit("copy", a=a, out=out.as_planes(shape, builder.lanes), p=(0, 1, 0, 1))


def _pad(builder: Builder, step: Step) -> None:
    a, out = builder.values[step.inputs[0]], builder.values[step.output]
    before, after = step.operation.attributes["channels"]
    top, left = step.operation.attributes["padding"][:2]
    for start, count in ((0, before), (before + a.channels, after)):
        if count:
            view = out.channels_from(start, count)
            builder.emit("copy", a=a, out=view, p=(a.height, 1, 0, 1))
    view = out.channels_from(before, a.channels)
    builder.emit("copy", a=a, out=view, p=(-top, 1, -left, 1))


def _slice(builder: Builder, step: Step) -> None:
    a, out = builder.values[step.inputs[0]], builder.values[step.output]
    start, by = step.operation.attributes["start"], step.operation.attributes["step"]
    view = a.channels_from(start[0], out.channels, by[0])
    builder.emit("copy", a=view, out=out, p=(start[1], by[1], start[2], by[2]))


def _softmax(builder: Builder, step: Step) -> None:
    a, out = builder.values[step.inputs[0]], builder.values[step.output]
    builder.emit("softmax", a=a, out=out, items=1, p=(bool(step.operation.attributes["log"]),))


def _edges(windows: Windows) -> NDArray[np.int32]:
    return np.stack([windows.begin, windows.end], 1).reshape(-1).astype(np.int32)


_EMITTERS: dict[str, Callable[[Builder, Step], None]] = {
    "max_pool": _pool,
    "avg_pool": _pool,
    "adaptive_avg_pool": _pool,
    "add": _pair,
    "multiply": _pair,
    "affine": _affine,
    "activation": _activation,
    "concatenate": _concatenate,
    "flatten": _flatten,
    "pad": _pad,
    "slice": _slice,
    "softmax": _softmax,
}
