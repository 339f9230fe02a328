"""Small random transformers that exercise every operation of sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from prunus_runtime.errors import GraphError
from prunus_runtime.graph import Graph
from prunus_runtime.tokens import Tokens
from support.graphs import DENSITIES, Builder, Draw, _activation, _affine

VOCABULARY = 7


def _norm(draw: Draw, net: Builder, x: str) -> str:
    channels = net.shapes[x][0]
    names = draw(st.sampled_from([("scale", "shift"), ("scale",), ()]))
    return net.add(
        "norm", x, {name: net.vector(channels) for name in names},
        epsilon=draw(st.sampled_from([1e-6, 0.1])), centred=draw(st.booleans()),
    )  # fmt: skip


def _linear(draw: Draw, net: Builder, x: str, features: int) -> str:
    return net.linear(x, features, draw(st.sampled_from(DENSITIES)), draw(st.booleans()))


def _attention(draw: Draw, net: Builder, x: str) -> str:
    """Of `x` to itself or to some of its positions, and perhaps added to it."""
    heads, depth, width = (draw(st.integers(1, most)) for most in (3, 9, 9))
    y = _norm(draw, net, x) if draw(st.booleans()) else x
    seen = _some_positions(draw, net, y) if draw(st.integers(0, 3)) == 0 else y
    query = _linear(draw, net, y, heads * depth)
    key, value = _linear(draw, net, seen, heads * depth), _linear(draw, net, seen, heads * width)
    mask = [_mask(draw, net, seen)] if draw(st.integers(0, 2)) == 0 else []
    mixed = net.add(
        "attention", [query, key, value, *mask],
        heads=heads, scale=depth**-0.5, causal=draw(st.booleans()),
    )  # fmt: skip
    if draw(st.booleans()):
        return mixed
    pair = [_linear(draw, net, mixed, net.shapes[x][0]), x]
    return net.add("add", draw(st.permutations(pair)))


def _mask(draw: Draw, net: Builder, seen: str) -> str:
    """One number for each key: of what it is, or by its token, and then some tokens are hidden."""
    is_whole = net.shapes["x"] == net.shapes[seen][1:]
    if not is_whole or draw(st.booleans()):
        return _linear(draw, net, seen, 1)
    hidden = draw(st.lists(st.booleans(), min_size=VOCABULARY, max_size=VOCABULARY))
    # Far enough to hide, and near enough that scores keep their digits where nothing else is seen.
    return net.add("embedding", "x", {"table": np.array([hidden], np.float32).T * -100})


def _parts(draw: Draw, net: Builder, x: str) -> str:
    """One layer for queries, keys and values, of which parts are taken."""
    width = draw(st.integers(1, 4)) * 2
    joint, length = _linear(draw, net, x, 3 * width), net.shapes[x][1]
    query, key, value = (
        net.add("slice", joint, start=[i * width, 0], stop=[i * width + width, length], step=[1, 1])
        for i in range(3)
    )
    return net.add("attention", [query, key, value], heads=2, scale=0.5, causal=True)


def _perceptron(draw: Draw, net: Builder, x: str) -> str:
    inner = _activation(draw, net, _linear(draw, net, x, draw(st.integers(1, 9))))
    outer = _linear(draw, net, inner, net.shapes[x][0])
    return net.add("add", draw(st.permutations([outer, x])))


def _some_positions(draw: Draw, net: Builder, x: str) -> str:
    start = [draw(st.integers(0, size - 1)) for size in net.shapes[x]]
    step = [draw(st.integers(1, 2)) for _ in start]
    return net.add("slice", x, start=start, stop=list(net.shapes[x]), step=step)


def _plane(_: Draw, net: Builder, x: str) -> str:
    return net.add("add_plane", x, {"plane": net.vector(*net.shapes[x])})


def _softmax(draw: Draw, net: Builder, x: str) -> str:
    return net.add("softmax", x, log=draw(st.booleans()))


def _joined(draw: Draw, net: Builder, x: str) -> str:
    return net.add("concatenate", [x, _linear(draw, net, x, draw(st.integers(1, 4)))])


def _transposed(_: Draw, net: Builder, x: str) -> str:
    return net.add("transpose", x)


BLOCKS = (
    _attention, _attention, _attention, _parts, _perceptron, _perceptron, _norm, _affine,
    _activation, _some_positions, _plane, _softmax, _joined, _transposed,
)  # fmt: skip


@st.composite
def transformers(draw: Draw, most: int = 6) -> Graph:
    """A valid network of tokens, sequences or images, with up to `most` blocks of sequences."""
    source, seed = draw(st.sampled_from(["tokens", "sequence", "image"])), draw(st.integers(0, 999))
    length, channels = draw(st.integers(1, 70)), draw(st.integers(1, 12))
    if source == "tokens":
        net = Builder((length,), seed)
        x = net.add("embedding", "x", {"table": net.vector(VOCABULARY, channels)})
    elif source == "sequence":
        net = Builder((length, channels), seed)
        x = net.add("transpose", "x")
    else:
        net = Builder((3, draw(st.integers(2, 12)), draw(st.integers(2, 12))), seed)
        x = net.add("reshape", net.conv("x", channels, (2, 2), (2, 2), (0, 0, 0, 0)))
    for block in draw(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=most)):
        x = block(draw, net, x)
    end = draw(st.sampled_from(["", "transpose", "mean", "flatten"]))
    if end:
        x = net.add(end, x)
    if end == "mean":
        x = net.linear(x, 3)
    graph = net.graph(x)
    if source != "tokens":
        return graph
    try:
        return replace(graph, tokens=Tokens(VOCABULARY, shorter=True)).check()
    except GraphError:
        return replace(graph, tokens=Tokens(VOCABULARY))
