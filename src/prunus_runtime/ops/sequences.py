"""What transformers have besides linear layers. A sequence has the shape (channels, positions)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from prunus_runtime import checks
from prunus_runtime.checks import number, sequence
from prunus_runtime.errors import GraphError
from prunus_runtime.native.interface import (
    QUERIES,
    AttentionParameters,
    EmbeddingParameters,
    Kernel,
)
from prunus_runtime.operation import Array, Flags, Operation, Shape
from prunus_runtime.ops.elements import factors
from prunus_runtime.ops.kind import Channels, Kind, all_tied, over_channels
from prunus_runtime.plan.builder import Builder, Step

SCORES = 2**22
"""Scores of an attention that numpy computes at a time."""


class Embedding(Kind):
    """A row of a table for each number of a vector: (positions,) becomes (C, positions).

    Tensors: `table` (rows, C). Numbers are cut to whole ones, and those that are no row stand for
    the nearest that is.
    """

    name = "embedding"
    tensors = ("table",)

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        table = checks.tensor(operation, "table")
        if len(inputs[0]) != 1:
            raise GraphError(f"its input has shape {inputs[0]}, not (positions,)")
        if len(table) != 2 or table[0] > checks.MAX_SIZE:
            raise GraphError(
                f"`table` has shape {table}, not (rows, channels) with at most "
                f"{checks.MAX_SIZE} rows"
            )
        return (table[1], inputs[0][0])

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        table = operation.tensors["table"]
        rows = np.clip(np.nan_to_num(inputs[0]), 0, len(table) - 1).astype(np.int64)
        return table[rows].transpose(0, 2, 1)

    def known(self, operation: Operation, _: Sequence[Channels]) -> Flags:
        return np.zeros(operation.tensors["table"].shape[1], dtype=bool)

    def needs(self, _: Operation, __: Flags, shapes: Sequence[Shape]) -> list[Flags]:
        return [np.ones(shapes[0][0], dtype=bool)]

    def tied(self, _: Operation, __: Sequence[Shape]) -> Iterator[tuple[int, str, int]]:
        return iter(())

    def narrowed(self, operation: Operation, _: Flags, after: Flags) -> Operation:
        table = np.ascontiguousarray(operation.tensors["table"][:, after])
        return replace(operation, tensors={"table": table})

    def emit(self, builder: Builder, step: Step) -> None:
        table, out = step.operation.tensors["table"], builder.places[step.output]
        items = -(-out.width * builder.lanes // builder.vector)
        builder.emit_unary(
            Kernel.EMBEDDING,
            step,
            EmbeddingParameters(builder.address(table), len(table)),
            items=items,
            parts=builder.parts(4 * items * out.channels),
        )


class AddPlane(Kind):
    """x + plane. Tensors: `plane`, a constant for each channel and position; a sequence that is
    shorter than it gets its first positions."""

    name = "add_plane"
    tensors = ("plane",)

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        checks.tensor(operation, "plane", inputs[0])
        return inputs[0]

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        x = inputs[0]
        return x + operation.tensors["plane"][..., : x.shape[-1]]

    def emit(self, builder: Builder, step: Step) -> None:
        plane = step.operation.tensors["plane"]
        builder.emit_unary(Kernel.ADD_PLANE, step, floats=(plane.reshape(-1),))


class Norm(Kind):
    """Over the channels of each position: (x - mean) / sqrt(variance + epsilon) * scale + shift.

    Attributes: `epsilon`; `centred`, without which the mean counts as 0 (RMSNorm). Tensors: `scale`
    (C), `shift` (C); either may be absent.
    """

    name = "norm"
    attributes = ("epsilon", "centred")
    optional_tensors = ("scale", "shift")

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        checks.flag(operation, "centred")
        if number(operation, "epsilon") < 1e-30:
            raise GraphError(
                f"`epsilon` is {operation.attributes['epsilon']}, not at least 1e-30: what is "
                "constant could not be divided"
            )
        for name in operation.tensors:
            checks.tensor(operation, name, inputs[0][:1])
        return inputs[0]

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        x, tensors = inputs[0], operation.tensors
        if operation.attributes["centred"]:
            x = x - x.mean(axis=1, keepdims=True)
        variance: Array = np.square(x).mean(axis=1, keepdims=True)
        y: Array = x / np.sqrt(variance + np.float32(operation.attributes["epsilon"]))
        if "scale" in tensors:
            y = y * over_channels(tensors["scale"], y)
        if "shift" in tensors:
            y = y + over_channels(tensors["shift"], y)
        return y

    def known(self, _: Operation, inputs: Sequence[Channels]) -> Flags:
        return np.full_like(inputs[0].known, inputs[0].known.all())

    def needs(self, _: Operation, __: Flags, shapes: Sequence[Shape]) -> list[Flags]:
        return [np.ones(shapes[0][0], dtype=bool)]

    def emit(self, builder: Builder, step: Step) -> None:
        out, operation = builder.places[step.output], step.operation
        builder.emit_unary(
            Kernel.NORM,
            step,
            option=operation.attributes["centred"],
            number=float(operation.attributes["epsilon"]),
            floats=factors(operation, out.channels),
            **builder.strips(out),
        )


class Attention(Kind):
    """Scaled dot-product attention of queries, keys and values, and perhaps a mask.

    Inputs: queries (heads * d, Q), keys (heads * d, K), values (heads * e, K), and optionally one
    number for each key (1, K) that is added to all its scores. Gives (heads * e, Q). Attributes:
    `heads`; `scale`, the factor of scores; `causal`, whether the query at position i sees only the
    keys up to i.
    """

    name = "attention"
    inputs = -3
    attributes = ("heads", "scale", "causal")

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        (depth, queries), (key_depth, keys), (width, values), *masks = map(sequence, inputs)
        heads = checks.integer(operation, "heads")
        number(operation, "scale")
        checks.flag(operation, "causal")
        fits = depth == key_depth and keys == values and masks in ([], [(1, keys)])
        if not fits or depth % heads or width % heads:
            raise GraphError(
                f"queries, keys, values and mask of shapes {checks.shown(tuple(inputs))} do not "
                f"fit each other and {heads} heads"
            )
        return (width, queries)

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        heads, causal = (operation.attributes[name] for name in ("heads", "causal"))
        scale = np.float32(operation.attributes["scale"])
        query, key, value = (x.reshape(len(x), heads, -1, x.shape[2]) for x in inputs[:3])
        (n, _, _, queries), keys = query.shape, key.shape[3]
        y = np.empty((n, heads, value.shape[2], queries), np.float32)
        block = max(1, SCORES // (n * heads * keys))
        for begin in range(0, queries, block):
            part = slice(begin, begin + block)
            scores: Array = key.transpose(0, 1, 3, 2) @ query[..., part] * scale
            if len(inputs) == 4:
                scores += inputs[3][:, :, :, None]
            if causal:
                seen = np.arange(keys)[:, None] <= np.arange(queries)[part]
                scores = np.where(seen, scores, np.float32(-np.inf))
            weights: Array = np.exp(scores - scores.max(axis=2, keepdims=True))
            y[..., part] = value @ (weights / weights.sum(axis=2, keepdims=True))
        return y.reshape(n, -1, queries)

    def work(self, operation: Operation, inputs: Sequence[Shape]) -> int:
        depth, width = (inputs[i][0] // operation.attributes["heads"] for i in (0, 2))
        return inputs[1][1] * int(1 + -(-(depth + 16) // width))

    def known(self, _: Operation, inputs: Sequence[Channels]) -> Flags:
        return np.full(inputs[2].shape[0], all(x.known.all() for x in inputs))

    def needs(self, _: Operation, __: Flags, shapes: Sequence[Shape]) -> list[Flags]:
        return [np.ones(shape[0], dtype=bool) for shape in shapes]

    def tied(self, operation: Operation, shapes: Sequence[Shape]) -> Iterator[tuple[int, str, int]]:
        return all_tied(operation, shapes[2][0])

    def emit(self, builder: Builder, step: Step) -> None:
        query, key, value, *masks = (builder.places[name] for name in step.inputs)
        out, attributes = builder.places[step.output], step.operation.attributes
        tiles = -(-out.width * builder.lanes // (QUERIES * builder.vector))
        vectors = -(-out.width * builder.lanes // builder.vector)
        builder.emit(
            Kernel.ATTENTION,
            AttentionParameters(
                heads=attributes["heads"],
                tiles=tiles,
                causal=attributes["causal"],
                value=value.offset,
                value_plane=value.plane,
                mask=masks[0].offset if masks else -1,
            ),
            a=query,
            b=key,
            out=out,
            items=attributes["heads"] * tiles,
            parts=builder.parts((query.channels + out.channels) * key.width * vectors),
            number=float(attributes["scale"]),
        )


class Mean(Kind):
    """Over the positions of a sequence."""

    name = "mean"

    def shape(self, _: Operation, inputs: Sequence[Shape]) -> Shape:
        return (sequence(inputs[0])[0],)

    def work(self, _: Operation, inputs: Sequence[Shape]) -> int:
        return inputs[0][1]

    def run(self, _: Operation, inputs: Sequence[Array]) -> Array:
        y: Array = inputs[0].mean(axis=2)
        return y

    def emit(self, builder: Builder, step: Step) -> None:
        a = builder.places[step.inputs[0]]
        parts = builder.parts(a.channels * a.width)
        builder.emit_unary(Kernel.MEAN, step, items=a.channels, parts=parts)
