"""Which inputs each window of a pooling sees along one axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.graph import Array, Operation


@dataclass(frozen=True)
class Windows:
    """Window i sees begin[i], begin[i] + step, ... before end[i]. An average multiplies its sum
    with factors[i] of both axes."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    step: int
    factors: Array
    whole: tuple[int, int] = (0, 0)
    """First and past last of consecutive windows that see nothing of the padding,"""
    stride: int = 0
    """their distance,"""
    taps: int = 0
    """and how many inputs each has."""


def pool_windows(operation: Operation, axis: int, size: int, count: int) -> Windows:
    """`count` windows along `axis` (0 rows, 1 columns) of a plane with `size` of these."""
    positions = np.arange(count)
    if operation.kind == "adaptive_avg_pool":
        begin, end = positions * size // count, -(-(positions + 1) * size // count)
        return Windows(begin, end, 1, _inverse(end - begin))
    attributes = operation.attributes
    taps, stride = attributes["kernel"][axis], attributes["stride"][axis]
    step = attributes.get("dilation", (1, 1))[axis]
    first = positions * stride - attributes["padding"][axis]
    last = first + (taps - 1) * step
    # The first tap that is inside.
    begin = first + np.maximum(0, -(first // step)) * step
    counted = attributes.get("count_padding", (0, 0, 0, 0))
    width = np.minimum(last + 1, size + counted[axis + 2]) - np.maximum(first, -counted[axis])
    whole = np.flatnonzero((first >= 0) & (last < size))
    bounds = (int(whole[0]), int(whole[-1]) + 1) if len(whole) else (0, 0)
    return Windows(begin, np.minimum(last + 1, size), step, _inverse(width), bounds, stride, taps)


def _inverse(counts: NDArray[np.int64]) -> Array:
    return (1 / np.maximum(counts, 1)).astype(np.float32)
