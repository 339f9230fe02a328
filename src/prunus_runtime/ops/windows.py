"""Windows that move over padded images: what convolutions need of them, and poolings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from prunus_runtime.checks import image, integers, shown, size
from prunus_runtime.errors import GraphError
from prunus_runtime.native.interface import Kernel, PoolParameters
from prunus_runtime.operation import Array, Operation, Shape
from prunus_runtime.ops.kind import Kind
from prunus_runtime.plan.builder import Builder, Step

MAX_PADDING = 4096
"""Of a pooling, on each side."""
TAP = 8
"""Multiply-adds that take about as long as one input of a pooling's window."""


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


@dataclass(frozen=True)
class Spans:
    """What the windows of a pooling see along one axis.

    Window i sees begin[i], begin[i] + step, ... before end[i]. An average multiplies its sum with
    factors[i] of both axes. Windows from whole[0] to before whole[1] see no padding; these are
    `stride` apart, and each has `taps` inputs.
    """

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    step: int
    factors: Array
    whole: tuple[int, int] = (0, 0)
    stride: int = 0
    taps: int = 0

    def edges(self) -> NDArray[np.int32]:
        return np.stack([self.begin, self.end], 1).reshape(-1).astype(np.int32)


class Pool(Kind):
    """What all poolings share."""

    kernel: Kernel

    @abstractmethod
    def spans(self, operation: Operation, axis: int, size: int, count: int) -> Spans:
        """Of `count` windows along `axis` (0 rows, 1 columns) of a plane with `size` of these."""

    def emit(self, builder: Builder, step: Step) -> None:
        a, out = builder.places[step.inputs[0]], builder.places[step.output]
        rows = self.spans(step.operation, 0, a.height, out.height)
        columns = self.spans(step.operation, 1, a.width, out.width)
        builder.emit_unary(
            self.kernel,
            step,
            PoolParameters(
                row_step=rows.step,
                column_step=columns.step,
                whole_begin=columns.whole[0],
                whole_end=columns.whole[1],
                stride=columns.stride,
                columns=columns.taps,
            ),
            ints=(rows.edges(), columns.edges()),
            floats=(rows.factors, columns.factors) if self.kernel is Kernel.AVG_POOL else (),
        )


class WindowPool(Pool):
    """Windows of one size. What a pooling must look at beyond its own padding (`ceil_mode`) is in
    `padding` at the bottom and right."""

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        kernel = integers(operation, "kernel", 2, 1)
        output = count_windows(operation, inputs[0], kernel)
        self._check_seen(operation, output, inputs[0])
        return (inputs[0][0], *output)

    def work(self, operation: Operation, _: Sequence[Shape]) -> int:
        height, width = operation.attributes["kernel"]
        return TAP * int(height * width)

    def counted(self, operation: Operation) -> Sequence[int]:
        """Padding that counts as something to see: [top, left, bottom, right]."""
        counted: Sequence[int] = operation.attributes.get("count_padding", (0, 0, 0, 0))
        return counted

    def _check_seen(self, operation: Operation, output: Sequence[int], x: Shape) -> None:
        """That each window has something to take the maximum or the mean of."""
        attributes, counted = operation.attributes, self.counted(operation)
        kernel, stride, padding = (attributes[name] for name in ("kernel", "stride", "padding"))
        dilation = attributes.get("dilation", (1, 1))
        if max(padding) > MAX_PADDING:
            raise GraphError(f"`padding` is {shown(padding)}; pooling can have {MAX_PADDING}")
        for axis in (0, 1):
            low, high = -counted[axis], x[1 + axis] + counted[2 + axis]
            last = (output[axis] - 1) * stride[axis] - padding[axis]
            # Windows that begin before `low`: is their first tap from `low` on one that they have,
            # and before `high`?
            start = np.arange(-padding[axis], min(low, last + 1), stride[axis])
            tap = -((start - low) // dilation[axis])
            missed = (tap >= kernel[axis]) | (start + tap * dilation[axis] >= high)
            if last >= high or missed.any():
                raise GraphError("one of its windows sees nothing but padding")

    def spans(self, operation: Operation, axis: int, size: int, count: int) -> Spans:
        attributes, counted = operation.attributes, self.counted(operation)
        taps, stride = attributes["kernel"][axis], attributes["stride"][axis]
        step = attributes.get("dilation", (1, 1))[axis]
        first = np.arange(count) * stride - attributes["padding"][axis]
        last = first + (taps - 1) * step
        begin = first + np.maximum(0, -(first // step)) * step  # the first tap that is inside
        width = np.minimum(last + 1, size + counted[axis + 2]) - np.maximum(first, -counted[axis])
        inside = np.flatnonzero((first >= 0) & (last < size))
        whole = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)
        return Spans(begin, np.minimum(last + 1, size), step, _inverse(width), whole, stride, taps)


class MaxPool(WindowPool):
    """Attributes: `kernel` [2], `stride` [2], `padding` [top, left, bottom, right] of minus
    infinity, `dilation` [2]."""

    name = "max_pool"
    attributes = ("kernel", "stride", "padding", "dilation")
    kernel = Kernel.MAX_POOL

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        kernel, stride, padding, dilation = (operation.attributes[n] for n in self.attributes)
        seen = windows(padded(inputs[0], padding, -np.inf), kernel, stride, dilation)
        y: Array = seen.max(axis=(4, 5))
        return y


class AvgPool(WindowPool):
    """Attributes: `kernel` [2], `stride` [2], `padding` [top, left, bottom, right] of zeros, and
    `count_padding` [4]: how much of that the averages count."""

    name = "avg_pool"
    attributes = ("kernel", "stride", "padding", "count_padding")
    kernel = Kernel.AVG_POOL

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        counted = integers(operation, "count_padding", 4, 0)
        padding = integers(operation, "padding", 4, 0)
        if any(part > whole for part, whole in zip(counted, padding, strict=True)):
            raise GraphError(f"`count_padding` {counted} is more than `padding` {padding}")
        return super().shape(operation, inputs)

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        a, x = operation.attributes, inputs[0]
        kernel, stride, padding, counted = (a[name] for name in self.attributes)
        ones = padded(np.ones((1, 1, *x.shape[2:]), np.float32), counted, 1.0)
        ones = padded(ones, [whole - part for whole, part in zip(padding, counted, strict=True)])
        totals: Array = windows(padded(x, padding), kernel, stride).sum(axis=(4, 5))
        counts: Array = windows(ones, kernel, stride).sum(axis=(4, 5))
        return totals / counts


class AdaptiveAvgPool(Pool):
    """Attributes: `size` [2] of the output. Each output is the mean of the inputs that its share of
    an axis touches."""

    name = "adaptive_avg_pool"
    attributes = ("size",)
    kernel = Kernel.AVG_POOL

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        return (image(inputs[0])[0], *integers(operation, "size", 2, 1))

    def work(self, operation: Operation, inputs: Sequence[Shape]) -> int:
        height, width = operation.attributes["size"]
        return TAP * int((inputs[0][1] // height + 2) * (inputs[0][2] // width + 2))

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        x = inputs[0]
        for axis, count in enumerate(operation.attributes["size"], start=2):
            begin, end = _shares(x.shape[axis], count)
            pairs = zip(begin.tolist(), end.tolist(), strict=True)
            means = [x.take(range(*pair), axis).mean(axis, keepdims=True) for pair in pairs]
            x = np.concatenate(means, axis)
        return x

    def spans(self, _: Operation, __: int, size: int, count: int) -> Spans:
        begin, end = _shares(size, count)
        return Spans(begin, end, 1, _inverse(end - begin))


def _shares(size: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    positions = np.arange(count)
    return positions * size // count, -(-(positions + 1) * size // count)


def _inverse(counts: NDArray[np.int64]) -> Array:
    return (1 / np.maximum(counts, 1)).astype(np.float32)
