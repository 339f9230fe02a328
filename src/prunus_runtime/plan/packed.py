"""Layers whose inputs are packed: four channels of eight bits where others have one of float32."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.operation import Array, Operation
from prunus_runtime.plan.builder import Step
from prunus_runtime.plan.lists import Lists
from prunus_runtime.storage import as_int8

MOST_INPUTS = 2**16
"""Of one output: the sum of their products, 255 * 127 at most, has 32 bits."""


@dataclass(frozen=True)
class Packed:
    """What becomes of the sums of a layer: `scales`, for each filter, is what a product counts, and
    `zero` the input that stands for zero."""

    scales: Array
    zero: int

    def corrections(self, lists: Lists) -> NDArray[np.int32]:
        """What the sum of each filter begins with, so that inputs count from `zero` on."""
        four = lists.values.view(np.int8).reshape(len(lists.values), lists.bundle, 4)
        before = np.zeros((len(four) + 1, lists.bundle), np.int64)
        np.cumsum(four.sum(axis=2), axis=0, out=before[1:])
        sums = before[lists.starts[1:]] - before[lists.starts[:-1]]
        return (-self.zero * sums).reshape(-1)[: len(self.scales)].astype(np.int32)


def can_be_packed(layer: Operation, made: Operation) -> bool:
    """Whether a layer can multiply bytes, with what `made` quantizes for it."""
    weight, attributes = layer.tensors["weight"], layer.attributes
    if attributes.get("groups", 1) > 1 or weight[0].size > MOST_INPUTS:
        return False
    if made.attributes["zero"] and tuple(attributes.get("stride", (1, 1))) != (1, 1):
        return False  # around phases there are zero bytes
    codes, scales = as_int8(weight)
    by_filter = over_filters(scales, weight)
    # Not exactly: a scale that is found again in a file may differ in its last bit.
    return bool((np.abs(codes * by_filter - weight) <= 1e-4 * by_filter).all())


def pack(layer: Step, made: Operation) -> tuple[Step, Packed]:
    """The layer with four weights, as integers, in the bits of each float32 of its tensor."""
    codes, scales = as_int8(layer.operation.tensors["weight"])
    words = np.ascontiguousarray(np.moveaxis(in_fours(codes), 2, -1)).view(np.float32)[..., 0]
    tensors = {**layer.operation.tensors, "weight": words}
    counts = (scales * made.attributes["step"]).astype(np.float32)
    step = replace(layer, operation=replace(layer.operation, tensors=tensors))
    return step, Packed(counts, made.attributes["zero"])


def in_fours(weight: NDArray[np.int8]) -> NDArray[np.int8]:
    """Channels (the second axis) as groups of four neighbours (the second and third); zeros fill
    the last."""
    missing = -weight.shape[1] % 4
    whole = np.pad(weight, [(0, 0), (0, missing), *[(0, 0)] * (weight.ndim - 2)])
    return whole.reshape(len(weight), -1, 4, *weight.shape[2:])


def over_filters(scales: Array, weight: Array) -> Array:
    """One number for each filter, in a shape that fits `weight`."""
    return scales.reshape(-1, *[1] * (weight.ndim - 1))
