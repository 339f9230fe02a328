"""Which inputs the windows of a convolution touch, also where these are split by phases."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.native.interface import Place
from prunus_runtime.operation import Array, Shape
from prunus_runtime.plan.builder import Step


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
        """The phase in which each tap finds its inputs."""
        return np.searchsorted(self.phases, self.taps % self.stride)

    def phase_offsets(self, distance: int) -> NDArray[np.int64]:
        """Where in its phase each tap finds them, if neighbours are `distance` apart."""
        return (self._shifts - self.first) * distance


def phases_name(step: Step) -> str:
    """The name of the value that holds a strided convolution's input by phases. With its line break
    it cannot be a name of the graph."""
    return f"{step.output}\nphases"


def phase_shape(rows: Taps, columns: Taps, channels: int, height: int, width: int) -> Shape:
    """Planes that hold rows and columns of one remainder of the stride, padding included, for an
    output of `height` x `width`."""
    phases = len(rows.phases) * len(columns.phases)
    return (phases * channels, height + rows.extent, width + columns.extent)


def on_plane(weight: Array, rows: NDArray[np.int64], columns: NDArray[np.int64], a: Place) -> Array:
    """The weights of a window with one position, those on padding removed."""
    seen = ((rows >= 0) & (rows < a.height))[:, None] & ((columns >= 0) & (columns < a.width))
    return np.where(seen, weight, np.float32(0))
