"""Which inputs the windows of a convolution touch, also where these are split by phases."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.fuse import Step
from prunus_runtime.graph import Array, Shape
from prunus_runtime.layout import Value


def is_unit_stride(step: Step) -> bool:
    """Whether the windows of neighbouring positions are neighbours: no phases are needed."""
    return tuple(step.operation.attributes["stride"]) == (1, 1)


class Taps:
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
        """In which phase each tap finds its inputs,"""
        return np.searchsorted(self.phases, self.taps % self.stride)

    def phase_offsets(self, distance: int) -> NDArray[np.int64]:
        """and where in it, if neighbours are `distance` apart."""
        return (self._shifts - self.first) * distance


def taps(step: Step) -> tuple[Taps, Taps]:
    """Rows and columns of a convolution."""
    attributes = step.operation.attributes
    kernel = step.operation.tensors["weight"].shape[2:]
    top, left = attributes["padding"][:2]
    return (
        Taps(kernel[0], attributes["stride"][0], attributes["dilation"][0], top),
        Taps(kernel[1], attributes["stride"][1], attributes["dilation"][1], left),
    )


def phases_name(step: Step) -> str:
    """The name of the value that holds a strided convolution's input by phases: no name of a graph
    can be that, since it has a line break."""
    return f"{step.output}\nphases"


def phase_shape(step: Step, shapes: dict[str, Shape]) -> Shape:
    """Planes that hold rows and columns of one remainder of the stride, padding included."""
    _, height, width = shapes[step.output]
    rows, columns = taps(step)
    phases = len(rows.phases) * len(columns.phases)
    channels = shapes[step.inputs[0]][0]
    return (phases * channels, height + rows.extent, width + columns.extent)


def on_plane(weight: Array, rows: NDArray[np.int64], columns: NDArray[np.int64], a: Value) -> Array:
    """The weights of a window with one position, those on padding removed."""
    seen = ((rows >= 0) & (rows < a.height))[:, None] & ((columns >= 0) & (columns < a.width))
    return np.where(seen, weight, np.float32(0))
