"""Zeros around images, and channels of zeros before and behind theirs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prunus_runtime.checks import image, integers
from prunus_runtime.operation import Array, Flags, Operation, Shape
from prunus_runtime.ops.kind import Indices, Kind, with_attributes
from prunus_runtime.plan.builder import Builder, Step


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
                builder.copy(a, out.channels_from(start, count), top=a.height)
        builder.copy(a, out.channels_from(before, a.channels), top=-top, left=-left)
