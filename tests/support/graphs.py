"""Small random networks that exercise every operation, for all tests of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from prunus_runtime.graph import Array, Graph, Operation, Shape, infer

Draw = Callable[..., Any]


class Builder:
    """Builds a graph, one operation at a time; refuses invalid ones."""

    def __init__(self, input_shape: Shape, seed: int = 0) -> None:
        self.input_shape = input_shape
        self.random = np.random.default_rng(seed)
        self.operations: list[Operation] = []
        self.shapes: dict[str, Shape] = {"x": input_shape}

    def add(
        self,
        kind: str,
        inputs: str | Sequence[str] = "x",
        tensors: dict[str, Array] | None = None,
        layer: str = "",
        /,
        **attributes: Any,
    ) -> str:
        """Append an operation; returns the name of its output."""
        names = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        output = f"v{len(self.operations)}"
        operation = Operation(kind, names, output, attributes, tensors or {}, layer)
        operations = [*self.operations, operation]
        self.shapes |= infer(Graph("x", self.input_shape, tuple(operations), output))
        self.operations = operations
        return output

    def graph(self, output: str | None = None) -> Graph:
        """The finished graph, checked as a whole."""
        last = self.operations[-1].output if output is None else output
        return Graph("x", self.input_shape, tuple(self.operations), last).check()

    def weights(self, *shape: int, density: float = 0.3, dead: bool = False) -> Array:
        """Sparse weights that keep activations near one; with `dead`, some filters are all zero."""
        weight = self.random.standard_normal(shape) * (self.random.random(shape) < density)
        if dead:
            weight[self.random.random(shape[0]) < 0.5] = 0
        kept = max(1.0, density * weight[0].size)
        return (weight / np.sqrt(kept)).astype(np.float32)

    def vector(self, *shape: int) -> Array:
        return self.random.standard_normal(shape).astype(np.float32)

    def conv(
        self,
        x: str,
        filters: int,
        kernel: tuple[int, int] = (3, 3),
        stride: tuple[int, int] = (1, 1),
        padding: tuple[int, int, int, int] = (1, 1, 1, 1),
        dilation: tuple[int, int] = (1, 1),
        groups: int = 1,
        density: float = 0.3,
        dead: bool = False,
        bias: bool = True,
        plane: bool = False,
    ) -> str:
        channels = self.shapes[x][0]
        tensors = {
            "weight": self.weights(filters, channels // groups, *kernel, density=density, dead=dead)
        }
        if bias:
            tensors["bias"] = self.vector(filters)
        if plane:
            sizes = [
                (self.shapes[x][1 + axis] + padding[axis] + padding[2 + axis]
                 - (kernel[axis] - 1) * dilation[axis] - 1) // stride[axis] + 1
                for axis in (0, 1)
            ]  # fmt: skip
            tensors["plane"] = self.vector(filters, *sizes)
        return self.add(
            "conv", x, tensors, f"layer{len(self.operations)}",
            stride=list(stride), padding=list(padding), dilation=list(dilation), groups=groups,
        )  # fmt: skip

    def linear(self, x: str, features: int, density: float = 0.3, bias: bool = True) -> str:
        tensors = {"weight": self.weights(features, self.shapes[x][0], density=density)}
        if bias:
            tensors["bias"] = self.vector(features)
        return self.add("linear", x, tensors, f"layer{len(self.operations)}")

    def activation(self, x: str, kind: str = "relu", **attributes: float) -> str:
        return self.add("activation", x, kind=kind, **attributes)


DENSITIES = (0.0, 0.02, 0.1, 0.3, 1.0)


def _integers(draw: Draw, count: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(draw(st.integers(low, high)) for _ in range(count))


def _conv(draw: Draw, net: Builder, x: str, keep_size: bool = False) -> str:
    """A convolution of any kind; with `keep_size` the output has the height and width of `x`."""
    channels, *size = net.shapes[x]
    dilation = _integers(draw, 2, 1, 2)
    if keep_size:
        kernel = tuple(2 * k + 1 for k in _integers(draw, 2, 0, 2))
        stride = (1, 1)
        half = [(kernel[axis] - 1) // 2 * dilation[axis] for axis in (0, 1)]
        padding = (half[0], half[1], half[0], half[1])
    else:
        padding, stride = _integers(draw, 4, 0, 3), _integers(draw, 2, 1, 3)
        room = [size[axis] + padding[axis] + padding[2 + axis] for axis in (0, 1)]
        kernel = tuple(
            draw(st.integers(1, min(5, (room[axis] - 1) // dilation[axis] + 1))) for axis in (0, 1)
        )
    groups = draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
    filters = groups * draw(st.integers(1, 3 if groups > 4 else 10))
    return net.conv(
        x, filters, kernel, stride, padding, dilation, groups,
        density=draw(st.sampled_from(DENSITIES)),
        dead=draw(st.booleans()),
        bias=draw(st.booleans()),
        plane=draw(st.integers(0, 4)) == 0,
    )  # fmt: skip


ACTIVATIONS: tuple[tuple[str, dict[str, float]], ...] = (
    ("relu", {}),
    ("clamp", {"low": 0.0, "high": 6.0}),
    ("clamp", {"low": -1.0, "high": 0.5}),
    ("leaky_relu", {"slope": 0.1}),
    ("elu", {"slope": 1.5}),
    ("sigmoid", {}),
    ("tanh", {}),
    ("silu", {}),
    ("hardswish", {}),
    ("hardsigmoid", {}),
    ("gelu", {}),
    ("gelu_tanh", {}),
)


def _activation(draw: Draw, net: Builder, x: str) -> str:
    kind, attributes = draw(st.sampled_from(ACTIVATIONS))
    return net.activation(x, kind, **attributes)


def _affine(draw: Draw, net: Builder, x: str) -> str:
    channels = net.shapes[x][0]
    names = draw(st.sampled_from([("scale", "shift"), ("scale",), ("shift",)]))
    return net.add("affine", x, {name: net.vector(channels) for name in names})


def _pool(draw: Draw, net: Builder, x: str) -> str:
    size = net.shapes[x][1:]
    kernel = tuple(draw(st.integers(1, min(4, length))) for length in size)
    stride = _integers(draw, 2, 1, 3)
    # Smaller than the kernel on each side, so that each window sees the image.
    usual = tuple(draw(st.integers(0, kernel[axis] // 2)) for axis in (0, 1, 0, 1))
    if draw(st.booleans()):
        return net.add(
            "max_pool", x, kernel=list(kernel), stride=list(stride), padding=list(usual),
            dilation=[1, 1],
        )  # fmt: skip
    counted = usual if draw(st.booleans()) else (0, 0, 0, 0)
    return net.add(
        "avg_pool", x, kernel=list(kernel), stride=list(stride), padding=list(usual),
        count_padding=list(counted),
    )  # fmt: skip


def _ceil_pool(draw: Draw, net: Builder, x: str) -> str:
    """Pooling by two that reaches one row and column further, as `ceil_mode` does at odd sizes."""
    further = [0, 0, net.shapes[x][1] % 2, net.shapes[x][2] % 2]
    options = {"kernel": [2, 2], "stride": [2, 2], "padding": further}
    if draw(st.booleans()):
        return net.add("max_pool", x, **options, dilation=[1, 1])
    return net.add("avg_pool", x, **options, count_padding=[0, 0, 0, 0])


def _dilated_pool(draw: Draw, net: Builder, x: str) -> str:
    dilation = [draw(st.integers(1, max(1, length - 1))) for length in net.shapes[x][1:]]
    kernel = [2 if length > dilation[axis] else 1 for axis, length in enumerate(net.shapes[x][1:])]
    return net.add(
        "max_pool", x, kernel=kernel, stride=[1, 1], padding=[0] * 4, dilation=dilation
    )  # fmt: skip


def _adaptive(draw: Draw, net: Builder, x: str) -> str:
    return net.add("adaptive_avg_pool", x, size=list(_integers(draw, 2, 1, 5)))


def _residual(draw: Draw, net: Builder, x: str) -> str:
    """The sum of `x`, or of a 1x1 convolution of it, and something of the same shape."""
    y = net.activation(_conv(draw, net, x, keep_size=True)) if draw(st.booleans()) else x
    if y == x or draw(st.booleans()):
        y = net.conv(y, net.shapes[x][0], density=draw(st.sampled_from(DENSITIES)), dead=True)
        shortcut = x
    else:
        shortcut = net.conv(x, net.shapes[y][0], (1, 1), padding=(0, 0, 0, 0), bias=False)
    pair = [y, shortcut] if draw(st.booleans()) else [shortcut, y]
    return net.add("add", pair)


def _excitation(draw: Draw, net: Builder, x: str) -> str:
    """Channels scaled (or shifted) according to their means, as in squeeze and excitation."""
    means = net.add("adaptive_avg_pool", x, size=[1, 1])
    gate = net.conv(means, net.shapes[x][0], (1, 1), padding=(0, 0, 0, 0), density=1.0)
    gate = net.activation(gate, "hardsigmoid")
    return net.add(draw(st.sampled_from(["multiply", "add"])), [x, gate])


def _branches(draw: Draw, net: Builder, x: str) -> str:
    made = [_conv(draw, net, x, keep_size=True) for _ in range(draw(st.integers(1, 2)))]
    return net.add("concatenate", [x, *made] if draw(st.booleans()) else [*made, x, x])


def _pad(draw: Draw, net: Builder, x: str) -> str:
    channels, padding = _integers(draw, 2, 0, 2), _integers(draw, 4, 0, 2)
    return net.add("pad", x, channels=list(channels), padding=list(padding))


def _slice(draw: Draw, net: Builder, x: str) -> str:
    start = [draw(st.integers(0, length - 1)) for length in net.shapes[x]]
    stop = [draw(st.integers(s + 1, n)) for s, n in zip(start, net.shapes[x], strict=True)]
    return net.add("slice", x, start=start, stop=stop, step=list(_integers(draw, 3, 1, 2)))


BLOCKS = (
    _conv, _conv, _residual, _residual, _affine, _activation, _pool, _ceil_pool, _dilated_pool,
    _adaptive, _excitation, _branches, _pad, _slice,
)  # fmt: skip


def _features_residual(draw: Draw, net: Builder, x: str) -> str:
    """x + linear(relu(linear(x)))"""
    inner = net.activation(net.linear(x, draw(st.integers(1, 6))))
    outer = net.linear(inner, net.shapes[x][0], density=draw(st.sampled_from(DENSITIES)))
    return net.add("add", draw(st.permutations([outer, x])))


@st.composite
def graphs(draw: Draw, most: int = 6) -> Graph:
    """A valid network of up to `most` blocks and perhaps a classifier."""
    shape = (*_integers(draw, 1, 1, 8), *_integers(draw, 2, 1, 12))
    net = Builder(shape, seed=draw(st.integers(0, 2**32 - 1)))
    x = "x"
    for block in draw(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=most)):
        if net.shapes[x][0] * net.shapes[x][1] * net.shapes[x][2] > 20_000:
            break
        x = block(draw, net, x)
    if draw(st.booleans()):
        if draw(st.booleans()):
            x = net.add("adaptive_avg_pool", x, size=[1, 1])
        x = net.add("flatten", x)
        for _ in range(draw(st.integers(0, 2))):
            x = net.linear(
                x,
                draw(st.integers(1, 10)),
                density=draw(st.sampled_from(DENSITIES)),
                bias=draw(st.booleans()),
            )
            if draw(st.booleans()):
                x = _affine(draw, net, x)
            x = _activation(draw, net, x)
        if draw(st.booleans()):
            x = _features_residual(draw, net, x)
        if draw(st.booleans()):
            x = net.add("softmax", x, log=draw(st.booleans()))
    return net.graph(x)


def batch(graph: Graph, n: int, seed: int = 0) -> Array:
    """Random images, sequences or tokens for `graph`."""
    random = np.random.default_rng(seed)
    if graph.tokens is not None:
        return random.integers(0, graph.tokens.vocabulary, (n, *graph.input_shape))
    return random.standard_normal((n, *graph.input_shape)).astype(np.float32)
