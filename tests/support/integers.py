"""Random networks of int8 layers in which all sums are exact in float32: whatever computes them,
and in whatever order, must give the same to the last bit."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from prunus_runtime.graph import Array, Graph
from support.graphs import DENSITIES, Builder, Draw

UNIT = 2.0**-7
"""Of weights; inputs of layers are multiples of a power of two as well."""


def weights(net: Builder, *shape: int, density: float) -> Array:
    """Integers of eight bits times `UNIT`, that can be found again: each filter has the largest."""
    codes = net.random.integers(-127, 128, shape) * (net.random.random(shape) < density)
    codes.reshape(shape[0], -1)[:, -1] = 127
    return (codes * UNIT).astype(np.float32)


def quantized(net: Builder, x: str, step: float, zero: int) -> str:
    return net.add("quantize", x, step=step, zero=zero)


@st.composite
def integer_networks(draw: Draw, most: int = 4) -> Graph:
    """Convolutions of quantized images, or linear layers of quantized sequences."""
    is_image = draw(st.booleans())
    sizes = [draw(st.integers(2, 11)) for _ in range(2 if is_image else 1)]
    net = Builder((draw(st.integers(1, 9)), *sizes), seed=draw(st.integers(0, 2**32 - 1)))
    x = "x"
    for _ in range(draw(st.integers(1, most))):
        step, zero = draw(st.sampled_from([0.25, 0.5, 1.0])), draw(st.sampled_from([0, 128, 255]))
        q = quantized(net, x, step, zero)
        channels, *size = net.shapes[x]
        filters, density = draw(st.integers(1, 10)), draw(st.sampled_from(DENSITIES))
        keep = draw(st.booleans())
        filters = channels if keep else filters
        if is_image:
            kernel = [3 if keep else draw(st.integers(1, min(3, length))) for length in size]
            tensors = {"weight": weights(net, filters, channels, *kernel, density=density)}
            attributes = {
                "stride": [1 if keep else draw(st.integers(1, 2)) for _ in range(2)],
                "padding": [1 if keep else draw(st.integers(0, 2)) for _ in range(4)],
                "dilation": [1, 1],
                "groups": 1,
            }
        else:
            tensors = {"weight": weights(net, filters, channels, density=density)}
            attributes = {}
        if keep and is_image:
            tensors["plane"] = net.random.integers(-9, 9, (filters, *size)).astype(np.float32)
        if draw(st.booleans()):
            tensors["bias"] = net.random.integers(-999, 999, filters).astype(np.float32)
        y = net.add("conv" if is_image else "linear", q, tensors, **attributes)
        if x != "x" and net.shapes[x] == net.shapes[y]:
            y = net.add("add", [y, x])
        x = net.activation(y) if draw(st.booleans()) else y
        if draw(st.integers(0, 3)) == 0:  # somebody else who reads what was quantized
            q = net.add("add", [q, q])
    return net.graph(x)
