"""Layers that multiply bytes: the same integers as numpy, wherever they are computed."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings

from prunus_runtime import Deployed, GraphError, native, reference
from prunus_runtime.graph import Graph, Operation
from prunus_runtime.native.interface import ConvParameters, Kernel
from prunus_runtime.planner import make_program
from support.graphs import Builder, batch
from support.integers import UNIT, integer_networks, quantized, weights
from support.native_paths import BATCHES, ISAS, runs


@pytest.mark.parametrize("isa", ISAS)
@given(graph=integer_networks())
@settings(max_examples=100)
def test_all_ways_give_the_same_integers(isa: str, graph: Graph) -> None:
    x = 8 * batch(graph, max(BATCHES))
    expected = reference.run(graph, x)
    for n, found in runs(isa, graph, x):
        np.testing.assert_array_equal(found, expected[:n])


@given(graph=integer_networks())
@settings(max_examples=50)
def test_a_processor_that_cannot_multiply_bytes_gives_them_too(graph: Graph) -> None:
    x = 8 * batch(graph, 17)
    with patch("prunus_runtime.native.packs", lambda _isa: False):
        np.testing.assert_array_equal(Deployed(graph, 1)(x), reference.run(graph, x))


def layer(
    zero: int = 0, stride: int = 1, groups: int = 1, readers: tuple[str, ...] = (), size: int = 6
) -> Graph:
    net = Builder((8, size, size))
    q = quantized(net, "x", 0.5, zero)
    weight = weights(net, 4, 8 // groups, 3, 3, density=0.9)
    options = {"padding": [1, 1, 1, 1], "dilation": [1, 1], "groups": groups}
    y = net.add("conv", q, {"weight": weight}, stride=[stride, stride], **options)
    for kind in readers:
        z = net.add("activation", q, kind=kind)
        z = net.add("slice", z, start=[0, 0, 0], stop=[4, size, size], step=[1, 1, 1])
        y = net.add("add", [y, z])
    return net.graph(y)


def packs(graph: Graph, lanes: int) -> bool:
    program = make_program(graph, "avx512", lanes, 1)
    conv = program.instructions[program.instructions["kernel"] == Kernel.CONV]
    quantize = program.instructions[program.instructions["kernel"] == Kernel.QUANTIZE]
    is_packed = conv["parameters"][:, ConvParameters._fields.index("scales")] >= 0
    assert bool(quantize["option"].any()) == bool(is_packed.any())
    return bool(is_packed.any())


@pytest.mark.skipif(not native.available() or not native.packs("avx512"), reason="no VNNI")
@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_bytes_are_multiplied_where_that_can_be(lanes: int) -> None:
    for zero in (0, 128):
        assert packs(layer(zero), lanes)
    assert packs(layer(0, stride=2), lanes)
    assert not packs(layer(128, stride=2), lanes)
    assert not packs(layer(groups=2), lanes)
    assert not packs(layer(readers=("relu",)), lanes)  # somebody wants floats
    assert not packs(layer(size=1), lanes)
    graph = layer()
    quantize, conv = graph.operations
    rounded_otherwise = conv.tensors["weight"].astype(np.float16).astype(np.float32) * 1.001
    rounded_otherwise[0, 0, 0, 0] = UNIT / 3
    conv = Operation(
        conv.kind, conv.inputs, conv.output, conv.attributes, {"weight": rounded_otherwise}
    )
    assert not packs(Graph("x", (8, 6, 6), (quantize, conv), conv.output), lanes)


@pytest.mark.parametrize("isa", ISAS)
def test_everything_has_its_place_between_the_ends(isa: str) -> None:
    """Also what is not finite, and halves, which go to the even neighbour."""
    net = Builder((5, 2, 2))
    graph = net.graph(quantized(net, "x", 0.5, 3))
    row = [np.nan, np.inf, -np.inf, 1e38, -1e38, 0.25, 0.75, -0.25, -0.75, 0.3, 127, -1.6, 0, 3, 4]
    x = np.array([*row, *range(5)], np.float32).reshape(1, 5, 2, 2)
    expected = reference.run(graph, x)
    first = [-1.5, 126, -1.5, 126, -1.5, 0, 1, 0, -1, 0.5, 126, -1.5, 0, 3, 4]
    np.testing.assert_array_equal(expected.reshape(-1)[:15], first)
    np.testing.assert_array_equal(Deployed(graph, 1, isa=isa)(x), expected)


@pytest.mark.parametrize(
    ("attributes", "complaint"),
    [
        ({"step": 0, "zero": 0}, "`step` is 0.0, not a number from 1e-30 to 1e30"),
        ({"step": -1.0, "zero": 0}, "`step` is -1.0"),
        ({"step": float("nan"), "zero": 0}, "`step` is nan, not a finite number"),
        ({"step": "1", "zero": 0}, "`step` is '1'"),
        ({"step": 1.0, "zero": 256}, "`zero` is 256, not an integer from 0 to 255"),
        ({"step": 1.0, "zero": -1}, "`zero` is -1"),
        ({"step": 1.0, "zero": True}, "`zero` is True"),
        ({"step": 1.0}, "lack zero"),
    ],
)
def test_what_cannot_be_a_range_is_refused(attributes: dict, complaint: str) -> None:
    with pytest.raises(GraphError, match=complaint):
        Graph("x", (2,), (Operation("quantize", ("x",), "y", attributes),), "y").check()


@pytest.mark.parametrize("isa", ISAS)
def test_the_longest_sum_has_room(isa: str) -> None:
    """As many products of 255 and 127 as can be."""
    net = Builder((2**14, 1, 5))
    q = quantized(net, "x", 1.0, 0)
    weight = np.full((1, 2**14, 1, 4), 127 * UNIT, np.float32)
    options = {"stride": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1}
    graph = net.graph(net.add("conv", q, {"weight": weight}, **options))
    y = Deployed(graph, 1, isa=isa)(np.full((1, 2**14, 1, 5), 300, np.float32))
    np.testing.assert_allclose(y, 2**16 * 255 * 127 * UNIT, rtol=1e-5)
