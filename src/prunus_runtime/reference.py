"""Runs a graph with numpy alone: the truth in tests, and what runs where nothing was compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from prunus_runtime.graph import Array, Graph, Operation

CHUNK = 8
"""Images at a time, so that the unfolded inputs of convolutions do not fill the memory."""


def run(graph: Graph, x: Array) -> Array:
    """The output of a valid `graph` for a batch `x` of shape (n, *input_shape)."""
    chunks = [_run(graph, x[start : start + CHUNK]) for start in range(0, max(len(x), 1), CHUNK)]
    return np.concatenate(chunks)


def _run(graph: Graph, x: Array) -> Array:
    last_use = {name: i for i, op in enumerate(graph.operations) for name in op.inputs}
    values = {graph.input: x}
    for i, operation in enumerate(graph.operations):
        inputs = [values[name] for name in operation.inputs]
        values[operation.output] = _KINDS[operation.kind](operation, *inputs)
        for name in set(operation.inputs):
            if last_use[name] == i and name != graph.output:
                del values[name]
    return values[graph.output]


def _over_channels(tensor: Array, x: Array) -> Array:
    return tensor.reshape(-1, *[1] * (x.ndim - 2))


def _padded(x: Array, padding: tuple[int, int, int, int], value: float = 0.0) -> Array:
    top, left, bottom, right = padding
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def _windows(x: Array, kernel: Any, stride: Any, dilation: Any) -> Array:
    """A view of shape (n, channels, height, width, kernel height, kernel width)."""
    reach = [(kernel[axis] - 1) * dilation[axis] + 1 for axis in (0, 1)]
    view = sliding_window_view(x, reach, axis=(2, 3))
    taken: Array = view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    return taken


def _conv(operation: Operation, x: Array) -> Array:
    options, weight = operation.attributes, operation.tensors["weight"]
    filters, channels, *kernel = weight.shape
    groups, taps = options["groups"], channels * math.prod(kernel)
    windows = _windows(
        _padded(x, options["padding"]), kernel, options["stride"], options["dilation"]
    )
    n, _, height, width = windows.shape[:4]
    columns = windows.transpose(0, 1, 4, 5, 2, 3).reshape(n, groups, taps, height * width)
    y = weight.reshape(groups, filters // groups, taps) @ columns
    y = y.reshape(n, filters, height, width)
    if "bias" in operation.tensors:
        y += _over_channels(operation.tensors["bias"], y)
    if "plane" in operation.tensors:
        y += operation.tensors["plane"]
    return y


def _linear(operation: Operation, x: Array) -> Array:
    y: Array = x @ operation.tensors["weight"].T
    if "bias" in operation.tensors:
        y += operation.tensors["bias"]
    return y


def _affine(operation: Operation, x: Array) -> Array:
    if "scale" in operation.tensors:
        x = x * _over_channels(operation.tensors["scale"], x)
    if "shift" in operation.tensors:
        x = x + _over_channels(operation.tensors["shift"], x)
    return x


def _max_pool(operation: Operation, x: Array) -> Array:
    options = operation.attributes
    padded = _padded(x, options["padding"], -np.inf)
    windows = _windows(padded, options["kernel"], options["stride"], options["dilation"])
    y: Array = windows.max(axis=(4, 5))
    return y


def _avg_pool(operation: Operation, x: Array) -> Array:
    options = operation.attributes
    kernel, stride, padding = options["kernel"], options["stride"], options["padding"]
    counted = options["count_padding"]
    ones = _padded(np.ones((1, 1, *x.shape[2:]), np.float32), counted, 1.0)
    rest = tuple(whole - part for whole, part in zip(padding, counted, strict=True))
    ones = _padded(ones, (rest[0], rest[1], rest[2], rest[3]))
    totals: Array = _windows(_padded(x, padding), kernel, stride, (1, 1)).sum(axis=(4, 5))
    counts: Array = _windows(ones, kernel, stride, (1, 1)).sum(axis=(4, 5))
    return totals / counts


def _adaptive(operation: Operation, x: Array) -> Array:
    for axis, size in enumerate(operation.attributes["size"], start=2):
        length = x.shape[axis]
        # Each output is the mean of the inputs that its share of the axis touches.
        bounds = [(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]
        means = [x.take(range(*pair), axis).mean(axis, keepdims=True) for pair in bounds]
        x = np.concatenate(means, axis)
    return x


def _sigmoid(x: Array) -> Array:
    y: Array = 0.5 * np.tanh(0.5 * x) + 0.5  # which cannot overflow
    return y


def _erf(x: Array) -> Array:
    """Within 1.5e-7 everywhere (Abramowitz and Stegun, formula 7.1.26)."""
    t = 1 / (1 + 0.3275911 * np.abs(x.astype(np.float64)))
    terms = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    series = sum(term * t ** (power + 1) for power, term in enumerate(terms))
    y: Array = (np.sign(x) * (1 - series * np.exp(-np.square(x, dtype=np.float64)))).astype(x.dtype)
    return y


def _leaky(x: Array, slope: float) -> Array:
    return np.where(x > 0, x, x * np.float32(slope))


def _elu(x: Array, slope: float) -> Array:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)) * np.float32(slope))


def _clamp(x: Array, low: float, high: float) -> Array:
    return np.clip(x, np.float32(low), np.float32(high))


_ACTIVATIONS: Mapping[str, Callable[..., Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "clamp": _clamp,
    "leaky_relu": _leaky,
    "elu": _elu,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "silu": lambda x: x * _sigmoid(x),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x * np.float32(math.sqrt(0.5)))),
    "gelu_tanh": lambda x: x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)),
}


def _activation(operation: Operation, x: Array) -> Array:
    options = {name: value for name, value in operation.attributes.items() if name != "kind"}
    return _ACTIVATIONS[operation.attributes["kind"]](x, **options)


def _pad(operation: Operation, x: Array) -> Array:
    top, left, bottom, right = operation.attributes["padding"]
    around = ((0, 0), tuple(operation.attributes["channels"]), (top, bottom), (left, right))
    return np.pad(x, around)


def _slice(operation: Operation, x: Array) -> Array:
    options = operation.attributes
    return x[:, *map(slice, options["start"], options["stop"], options["step"])]


def _softmax(operation: Operation, x: Array) -> Array:
    shifted: Array = x - x.max(axis=1, keepdims=True)
    exponentials: Array = np.exp(shifted)
    total: Array = exponentials.sum(axis=1, keepdims=True)
    return shifted - np.log(total) if operation.attributes["log"] else exponentials / total


_KINDS: Mapping[str, Callable[..., Array]] = {
    "conv": _conv,
    "linear": _linear,
    "affine": _affine,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "adaptive_avg_pool": _adaptive,
    "activation": _activation,
    "add": lambda _, a, b: a + b,
    "multiply": lambda _, a, b: a * b,
    "concatenate": lambda _, *inputs: np.concatenate(inputs, axis=1),
    "flatten": lambda _, x: x.reshape(len(x), math.prod(x.shape[1:])),
    "pad": _pad,
    "slice": _slice,
    "softmax": _softmax,
}
