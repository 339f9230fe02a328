"""Windows that move over padded images: what convolutions and poolings share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from prunus_runtime.checks import image, integers, size
from prunus_runtime.errors import GraphError
from prunus_runtime.operation import Array, Operation, Shape


def count_windows(operation: Operation, x: Shape, kernel: Sequence[int]) -> tuple[int, int]:
    """Height and width of the output."""
    channels, height, width = image(x)
    stride = integers(operation, "stride", 2, 1)
    top, left, bottom, right = integers(operation, "padding", 4, 0)
    dilation = (
        integers(operation, "dilation", 2, 1) if "dilation" in operation.attributes else (1, 1)
    )
    padded = size((channels, height + top + bottom, width + left + right), "the padded input")
    reach = [(kernel[axis] - 1) * dilation[axis] + 1 for axis in (0, 1)]
    if reach[0] > padded[1] or reach[1] > padded[2]:
        raise GraphError(
            f"its window of {tuple(reach)} is larger than the padded input {padded[1:]}"
        )
    return (padded[1] - reach[0]) // stride[0] + 1, (padded[2] - reach[1]) // stride[1] + 1


def padded(x: Array, padding: Sequence[int], value: float = 0.0) -> Array:
    """A batch with [top, left, bottom, right] of `value` around it."""
    top, left, bottom, right = padding
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def windows(
    x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int] = (1, 1)
) -> Array:
    """A view of shape (n, channels, height, width, kernel height, kernel width)."""
    reach = [(kernel[axis] - 1) * dilation[axis] + 1 for axis in (0, 1)]
    view = sliding_window_view(x, reach, axis=(2, 3))
    taken: Array = view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    return taken
