"""Layers with weights: what convolutions and linear layers share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from prunus_runtime.native.interface import Place
from prunus_runtime.operation import Flags, Operation, Shape
from prunus_runtime.ops.kind import Channels, Kind, with_attributes
from prunus_runtime.plan.builder import Builder, Step
from prunus_runtime.plan.layout import ArenaLayout
from prunus_runtime.plan.lists import Lists, make_lists
from prunus_runtime.plan.tiled import emit_across, emit_along, emit_single


class Layer(Kind):
    """Weighted sums of inputs; `bias` is optional."""

    tensors = ("weight",)

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

    @abstractmethod
    def weights(self, builder: Builder, step: Step, /) -> tuple[Place, Lists]:
        """The input, as the layer reads it, and the kept weights."""

    def emit(self, builder: Builder, step: Step) -> None:
        out, weight = builder.places[step.output], step.operation.tensors["weight"]
        if step.inputs:
            a, lists = self.weights(builder, step)
        else:
            nothing = np.zeros((len(weight), 0, 1, 1), np.float32)
            a, lists = out, make_lists(nothing, 1, np.zeros((0, 1, 1), np.int64))
        if not builder.along:
            rows, columns = (
                step.operation.attributes.get("stride", (0, 1)) if step.inputs else (0, 1)
            )
            emit_across(builder, step, a, lists, rows * a.pitch, columns * builder.lanes)
        elif builder.lanes > 1 or out.height * out.width > 1:
            emit_along(builder, step, a, lists)
        else:
            emit_single(builder, step, a, lists, self.is_matrix(step, a, lists))

    def is_matrix(self, _step: Step, _a: Place, _lists: Lists, /) -> bool:
        """Whether one image is faster with all weights, also those that are zero."""
        return False


def _reads(layer: Operation) -> Flags:
    """Whether output `o` reads channel `i`, as (o, i)."""
    weight, groups = layer.tensors["weight"], layer.attributes.get("groups", 1)
    used: Flags = (weight != 0).reshape(*weight.shape[:2], -1).any(axis=2)
    if groups == 1:
        return used
    filters, channels = used.shape
    whole = np.zeros((filters, channels * groups), dtype=bool)
    for o in range(filters):
        start = o // (filters // groups) * channels
        whole[o, start : start + channels] = used[o]
    return whole
