"""Shapes of a graph, and what is refused: the operation, the field and the value are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prunus_runtime import Graph, GraphError, Operation, reference
from support.graphs import Builder, batch, graphs

CONV = {"stride": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1}
POOL = {"kernel": [2, 2], "stride": [2, 2], "padding": [0, 0, 0, 0]}
MAX = {**POOL, "dilation": [1, 1]}
AVG = {**POOL, "count_padding": [0, 0, 0, 0]}
NORM = {"epsilon": 1e-5, "centred": True}
WEIGHT = np.ones((4, 2, 3, 3), np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def shape_of(input_shape, kind, attributes=(), tensors=(), inputs=("x",)):
    operation = Operation(kind, inputs, "y", dict(attributes), dict(tensors), "block.layer")
    return Graph("x", input_shape, (operation,), "y").shapes["y"]


@pytest.mark.parametrize(
    ("input_shape", "kind", "attributes", "tensors", "expected"),
    [
        ((2, 5, 7), "conv", CONV, {"weight": WEIGHT}, (4, 3, 5)),
        ((2, 5, 7), "conv", {**CONV, "stride": [2, 3]}, {"weight": WEIGHT}, (4, 2, 2)),
        ((2, 5, 7), "conv", {**CONV, "padding": [1, 0, 2, 1]}, {"weight": WEIGHT}, (4, 6, 6)),
        ((2, 5, 7), "conv", {**CONV, "dilation": [2, 3]}, {"weight": WEIGHT}, (4, 1, 1)),
        ((4, 5, 7), "conv", {**CONV, "groups": 2}, {"weight": WEIGHT}, (4, 3, 5)),
        ((2, 5, 7), "conv", CONV, {"weight": WEIGHT, "plane": zeros(4, 3, 5)}, (4, 3, 5)),
        ((6,), "linear", {}, {"weight": zeros(3, 6), "bias": zeros(3)}, (3,)),
        ((2, 5, 7), "affine", {}, {"scale": zeros(2), "shift": zeros(2)}, (2, 5, 7)),
        ((2,), "affine", {}, {}, (2,)),
        ((2, 5, 7), "max_pool", MAX, {}, (2, 2, 3)),
        ((2, 5, 7), "avg_pool", {**AVG, "padding": [0, 0, 1, 1]}, {}, (2, 3, 4)),
        ((2, 5, 7), "adaptive_avg_pool", {"size": [1, 9]}, {}, (2, 1, 9)),
        ((2, 5, 7), "activation", {"kind": "clamp", "low": 0, "high": 6.0}, {}, (2, 5, 7)),
        ((2, 5, 7), "flatten", {}, {}, (70,)),
        ((2, 5, 7), "pad", {"channels": [1, 2], "padding": [1, 2, 3, 4]}, {}, (5, 9, 13)),
        (
            (2, 5, 7),
            "slice",
            {"start": [0, 1, 0], "stop": [1, 5, 7], "step": [1, 2, 2]},
            {},
            (1, 2, 4),
        ),
        ((3,), "softmax", {"log": True}, {}, (3,)),
        ((5,), "embedding", {}, {"table": zeros(9, 4)}, (4, 5)),
        ((6, 5), "linear", {}, {"weight": zeros(3, 6), "bias": zeros(3)}, (3, 5)),
        ((6, 5), "add_plane", {}, {"plane": zeros(6, 5)}, (6, 5)),
        ((6, 5), "norm", NORM, {"scale": zeros(6)}, (6, 5)),
        ((6, 5), "mean", {}, {}, (6,)),
        ((6, 5), "transpose", {}, {}, (5, 6)),
        ((6, 5), "flatten", {}, {}, (30,)),
        ((6, 5), "slice", {"start": [0, 1], "stop": [6, 5], "step": [2, 3]}, {}, (3, 2)),
        ((2, 5, 7), "reshape", {}, {}, (2, 35)),
    ],
)
def test_shapes_worked_out_by_hand(input_shape, kind, attributes, tensors, expected):
    assert shape_of(input_shape, kind, attributes, tensors) == expected


def test_operations_of_two_values():
    net = Builder((2, 4, 4))
    gate = net.add("adaptive_avg_pool", "x", size=[1, 1])
    assert net.shapes[net.add("multiply", ["x", gate])] == (2, 4, 4)
    assert net.shapes[net.add("add", ["x", "x"])] == (2, 4, 4)
    assert net.shapes[net.add("concatenate", ["x", "x", "x"])] == (6, 4, 4)
    with pytest.raises(GraphError, match=r"shapes \(2, 1, 1\) and \(2, 4, 4\)"):
        net.add("multiply", [gate, "x"])
    with pytest.raises(GraphError, match="only differ in channels"):
        net.add("concatenate", ["x", gate])
    with pytest.raises(GraphError, match="has 1 inputs, not 2 or more"):
        net.add("concatenate", "x")


ATTENTION = {"heads": 2, "scale": 0.5, "causal": False}


def attention(shapes: list[tuple[int, int]], **changes: object) -> tuple[int, ...]:
    """The shape of an attention on slices of the input of these sizes."""
    net = Builder((8, 9))
    inputs = [
        net.add("slice", "x", start=[0, 0], stop=list(shape), step=[1, 1]) for shape in shapes
    ]
    return net.shapes[net.add("attention", inputs, **{**ATTENTION, **changes})]


def test_attention_fits_queries_keys_values_and_mask():
    assert attention([(4, 3), (4, 5), (6, 5)]) == (6, 3)
    assert attention([(4, 3), (4, 5), (6, 5), (1, 5)], causal=True) == (6, 3)
    for shapes in (
        [(4, 3), (2, 5), (6, 5)],
        [(4, 3), (4, 5), (6, 4)],
        [(4, 3), (4, 5), (7, 5)],
        [(4, 3), (4, 5), (6, 5), (2, 5)],
        [(4, 3), (4, 5), (6, 5), (1, 4)],
        [(4, 3), (4, 5), (6, 5), (1, 5), (1, 5)],
    ):
        with pytest.raises(GraphError, match="do not fit each other and 2 heads"):
            attention(shapes)
    with pytest.raises(GraphError, match="`heads` is 0"):
        attention([(4, 3), (4, 5), (6, 5)], heads=0)
    with pytest.raises(GraphError, match="`scale` is"):
        attention([(4, 3), (4, 5), (6, 5)], scale=float("nan"))
    with pytest.raises(GraphError, match="has 2 inputs, not 3 or more"):
        attention([(4, 3), (4, 5)])


@pytest.mark.parametrize(
    ("kind", "attributes", "tensors", "message"),
    [
        ("warp", {}, {}, "no such operation; it has activation, adapt"),
        (["conv"], {}, {}, "no such operation"),
        ("conv", {}, {"weight": WEIGHT}, "attributes lack dilation, groups"),
        ("conv", {**CONV, "speed": 1}, {"weight": WEIGHT}, "unknown 'speed'"),
        ("conv", CONV, {}, "tensors lack weight"),
        ("conv", CONV, {"weight": WEIGHT, "x": WEIGHT}, "tensors have an unknown 'x'"),
        ("conv", {**CONV, "stride": [0, 1]}, {"weight": WEIGHT}, r"`stride` is \[0, 1\]"),
        ("conv", {**CONV, "stride": [True, 1]}, {"weight": WEIGHT}, "`stride` is"),
        ("conv", {**CONV, "stride": [1.0, 1]}, {"weight": WEIGHT}, "`stride` is"),
        ("conv", {**CONV, "stride": 1}, {"weight": WEIGHT}, "`stride` is 1"),
        ("conv", {**CONV, "padding": [0, 0, 0, -1]}, {"weight": WEIGHT}, "`padding` is"),
        ("conv", {**CONV, "padding": [0, 0]}, {"weight": WEIGHT}, "not 4 integers"),
        ("conv", {**CONV, "padding": [2**20] * 4}, {"weight": WEIGHT}, "the padded input"),
        ("conv", {**CONV, "padding": [10**30] * 4}, {"weight": WEIGHT}, "`padding` is"),
        ("conv", {**CONV, "groups": 0}, {"weight": WEIGHT}, "`groups` is 0"),
        ("conv", {**CONV, "groups": 2}, {"weight": WEIGHT}, "in 2 groups does not fit"),
        ("conv", {**CONV, "groups": 10**5000}, {"weight": WEIGHT}, "a huge integer"),
        ("conv", {**CONV, "dilation": [5, 1]}, {"weight": WEIGHT}, "larger than the padded"),
        ("conv", CONV, {"weight": WEIGHT[0]}, r"`weight` has shape \(2, 3, 3\)"),
        ("conv", CONV, {"weight": WEIGHT.astype(np.float64)}, "not a numpy array of float32"),
        ("conv", CONV, {"weight": [1.0]}, "not a numpy array of float32"),
        ("conv", CONV, {"weight": WEIGHT[:0]}, "`weight` has shape"),
        ("conv", CONV, {"weight": WEIGHT[:, :1]}, "does not fit an input"),
        ("conv", CONV, {"weight": WEIGHT * np.nan}, "`weight` has values that are not finite"),
        ("conv", CONV, {"weight": WEIGHT * np.inf}, "`weight` has values that are not finite"),
        (
            "conv",
            CONV,
            {"weight": WEIGHT, "bias": zeros(3)},
            r"`bias` has shape \(3,\), not \(4,\)",
        ),
        ("conv", CONV, {"weight": WEIGHT, "plane": zeros(4, 5, 7)}, "`plane` has shape"),
        ("linear", {}, {"weight": zeros(3, 70)}, r"not \(features,\)"),
        ("affine", {}, {"scale": zeros(5)}, "`scale` has shape"),
        ("max_pool", {**MAX, "padding": [2, 0, 0, 0]}, {}, "nothing but padding"),
        ("max_pool", {**MAX, "padding": [0, 0, 0, 4]}, {}, "nothing but padding"),
        ("max_pool", {**MAX, "padding": [0, 0, 0, 5000]}, {}, "pooling can have 4096"),
        ("max_pool", {**MAX, "kernel": [6, 2]}, {}, r"window of \(6, 2\)"),
        ("avg_pool", {**AVG, "count_padding": [0, 0, 1, 0]}, {}, "`count_padding`"),
        ("avg_pool", {**AVG, "padding": [2, 0, 0, 0]}, {}, "nothing but padding"),
        ("adaptive_avg_pool", {"size": [0, 1]}, {}, "`size` is"),
        ("adaptive_avg_pool", {"size": [2**20, 2**20]}, {}, "the output would have shape"),
        ("activation", {}, {}, "`kind` is None"),
        ("activation", {"kind": "mish"}, {}, "`kind` is 'mish', not one of clamp"),
        ("activation", {"kind": "elu"}, {}, "attributes lack slope"),
        ("activation", {"kind": "relu", "slope": 1.0}, {}, "unknown 'slope'"),
        ("activation", {"kind": "elu", "slope": float("nan")}, {}, "`slope` is nan"),
        ("activation", {"kind": "elu", "slope": 10**400}, {}, "`slope` is a huge"),
        ("activation", {"kind": "clamp", "low": 1, "high": 0}, {}, "`low` 1.0 is more"),
        ("add", {}, {}, "has 1 inputs, not 2"),
        ("pad", {"channels": [-1, 0], "padding": [0] * 4}, {}, "`channels` is"),
        ("slice", {"start": [0] * 3, "stop": [2, 5, 8], "step": [1] * 3}, {}, "do not fit"),
        ("slice", {"start": [1] * 3, "stop": [1, 5, 7], "step": [1] * 3}, {}, "do not fit"),
        ("slice", {"start": [0] * 3, "stop": [2, 5, 7], "step": [0, 1, 1]}, {}, "`step` is"),
        ("softmax", {"log": 1}, {}, "`log` is 1"),
        ("norm", {**NORM, "epsilon": 0.0}, {}, "`epsilon` is 0.0, not at least"),
        ("norm", {**NORM, "centred": 1}, {}, "`centred` is 1, not true or false"),
        ("norm", NORM, {"scale": zeros(3)}, "`scale` has shape"),
        ("add_plane", {}, {"plane": zeros(2, 5)}, "`plane` has shape"),
        ("mean", {}, {}, r"not \(channels, positions\)"),
        ("transpose", {}, {}, r"not \(channels, positions\)"),
        ("embedding", {}, {"table": zeros(3, 4)}, r"not \(positions,\)"),
    ],
)
def test_a_bad_operation_is_named(kind, attributes, tensors, message):
    with pytest.raises(GraphError, match=message) as raised:
        shape_of((2, 5, 7), kind, attributes, tensors)
    assert str(raised.value).startswith(f"operation 0 ({kind!r} of layer 'block.layer'): ")
    assert len(str(raised.value)) < 400


def test_a_max_pool_whose_taps_miss_the_image():
    # Windows at -1 and 1 of an image of one row: the row is between the taps.
    options = {"kernel": [2, 1], "stride": [1, 1], "padding": [1, 0, 1, 0], "dilation": [2, 1]}
    with pytest.raises(GraphError, match="nothing but padding"):
        shape_of((1, 1, 1), "max_pool", options)
    assert shape_of((1, 2, 1), "max_pool", options) == (1, 2, 1)


@settings(max_examples=500)
@given(st.data())
def test_windows_of_padding_are_found(data):
    size, kernel, stride = (data.draw(st.integers(1, 6)) for _ in range(3))
    dilation = data.draw(st.integers(1, 7))
    padding = [data.draw(st.integers(0, 9)) for _ in range(2)]
    assume(size + sum(padding) > (kernel - 1) * dilation)
    options = {
        "kernel": [1, kernel],
        "stride": [1, stride],
        "padding": [0, padding[0], 0, padding[1]],
        "dilation": [1, dilation],
    }
    count = (size + sum(padding) - (kernel - 1) * dilation - 1) // stride + 1
    windows = [range(-padding[0] + i * stride, 10**6, dilation)[:kernel] for i in range(count)]
    if all(any(0 <= tap < size for tap in window) for window in windows):
        assert shape_of((1, 1, size), "max_pool", options) == (1, 1, count)
    else:
        with pytest.raises(GraphError, match="nothing but padding"):
            shape_of((1, 1, size), "max_pool", options)


RELU = Operation("activation", ("x",), "y", {"kind": "relu"})
GRAPH = Graph("x", (1, 2, 2), (RELU,), "y")


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (replace(GRAPH, input_shape=(1, 2, 2, 2)), r"the input would have shape \(1, 2, 2, 2\)"),
        (replace(GRAPH, input_shape=()), r"the input would have shape \(\)"),
        (replace(GRAPH, input_shape=(1, 0, 2)), "nothing empty"),
        (replace(GRAPH, input_shape=[1, 2, 2]), "not a tuple of integers"),
        (replace(GRAPH, input_shape=(1.0, 2, 2)), "not a tuple of integers"),
        (replace(GRAPH, input_shape=(2**10, 2**10, 2**10)), "elements"),
        (replace(GRAPH, input_shape=(1, 2**21, 1)), "in height or width"),
        (replace(GRAPH, input=""), "the input's name is ''"),
        (replace(GRAPH, operations=()), "no operations"),
        (replace(GRAPH, output="z"), "output 'z' is made by no operation"),
        (replace(GRAPH, output=["y"]), "is made by no operation"),
        (replace(GRAPH, output="x"), "output 'x' is made by no operation"),
        (replace(GRAPH, operations=(RELU, RELU)), "operation 1 .*'y' is made twice"),
        (replace(GRAPH, operations=(replace(RELU, output="x"),)), "'x' is made twice"),
        (replace(GRAPH, operations=(replace(RELU, inputs=("z",)),)), "its input 'z'"),
        (replace(GRAPH, operations=(replace(RELU, inputs=(["x"],)),)), "makes its input"),
        (replace(GRAPH, operations=(replace(RELU, output="\x1b[2J"),)), "printable"),
        (replace(GRAPH, operations=(replace(RELU, layer="l" * 1001),)), "the layer's name"),
    ],
)
def test_a_bad_graph_is_refused(graph, message):
    with pytest.raises(GraphError, match=message):
        graph.check()


@settings(max_examples=150)
@given(graphs())
def test_values_have_the_shapes_that_were_foretold(graph):
    known = graph.shapes
    output = reference.run(graph, batch(graph, 2))
    assert output.shape == (2, *known[graph.output])
    assert output.dtype == np.float32
    assert np.isfinite(output).all()
