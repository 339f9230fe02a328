"""The reference against torch, for every operation and attribute, and against hand-made cases."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prunus_runtime import Graph, Operation, reference
from support.graphs import ACTIVATIONS, Builder, batch, graphs

torch.set_num_threads(1)
MANY = settings(max_examples=100)


def assert_close(ours: np.ndarray, theirs: torch.Tensor) -> None:
    expected = theirs.numpy()
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    assert ours.shape == expected.shape
    assert ours.dtype == np.float32
    assert np.abs(ours - expected).max(initial=0) <= 2e-6 * scale


def in_torch(graph: Graph, x: np.ndarray) -> torch.Tensor:
    """The graph with torch's own functions, in float64."""
    values = {graph.input: torch.from_numpy(x).double()}
    for operation in graph.operations:
        inputs = [values[name] for name in operation.inputs]
        tensors = {k: torch.from_numpy(v).double() for k, v in operation.tensors.items()}
        values[operation.output] = step(operation, inputs, tensors)
    return values[graph.output].float()


def padded(x: torch.Tensor, padding, value: float = 0.0) -> torch.Tensor:
    top, left, bottom, right = padding
    return F.pad(x, (left, right, top, bottom), value=value)


def step(operation: Operation, inputs, tensors) -> torch.Tensor:
    x, a = inputs[0], operation.attributes
    match operation.kind:
        case "conv":
            y = F.conv2d(
                padded(x, a["padding"]), tensors["weight"], tensors.get("bias"),
                a["stride"], 0, a["dilation"], a["groups"],
            )  # fmt: skip
            return y + tensors.get("plane", 0)
        case "linear":
            return F.linear(x, tensors["weight"], tensors.get("bias"))
        case "affine":
            view = (-1, *[1] * (x.ndim - 2))
            scale, shift = tensors.get("scale"), tensors.get("shift")
            x = x if scale is None else x * scale.view(view)
            return x if shift is None else x + shift.view(view)
        case "max_pool":
            x = padded(x, a["padding"], -torch.inf)
            return F.max_pool2d(x, a["kernel"], a["stride"], 0, a["dilation"])
        case "avg_pool":
            ones = padded(torch.ones_like(x), a["count_padding"], 1.0)
            rest = [p - c for p, c in zip(a["padding"], a["count_padding"], strict=True)]
            means = F.avg_pool2d(padded(x, a["padding"]), a["kernel"], a["stride"])
            return means / F.avg_pool2d(padded(ones, rest), a["kernel"], a["stride"])
        case "adaptive_avg_pool":
            return F.adaptive_avg_pool2d(x, a["size"])
        case "activation":
            return activation(x, **a)
        case "add":
            return x + inputs[1]
        case "multiply":
            return x * inputs[1]
        case "concatenate":
            return torch.cat(inputs, 1)
        case "flatten":
            return x.flatten(1)
        case "pad":
            top, left, bottom, right = a["padding"]
            return F.pad(x, (left, right, top, bottom, *a["channels"]))
        case "slice":
            return x[:, *map(slice, a["start"], a["stop"], a["step"])]
        case "softmax":
            return x.log_softmax(1) if a["log"] else x.softmax(1)
    raise AssertionError(operation.kind)


def activation(x: torch.Tensor, kind: str, **options: float) -> torch.Tensor:
    if kind == "clamp":
        return x.clamp(options["low"], options["high"])
    if kind in ("leaky_relu", "elu"):
        return getattr(F, kind)(x, options["slope"])
    if kind == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    return getattr(torch if kind in ("sigmoid", "tanh") else F, kind)(x)


@settings(max_examples=200)
@given(graphs(), st.sampled_from([1, 2, 9]))
def test_whole_networks(graph, n):
    x = batch(graph, n)
    assert_close(reference.run(graph, x), in_torch(graph, x))


def one(kind: str, input_shape, tensors=(), /, **attributes) -> Graph:
    return Graph("x", input_shape, (Operation(kind, ("x",), "y", attributes, dict(tensors)),), "y")


@pytest.mark.parametrize(("kind", "options"), ACTIVATIONS)
def test_activations_over_their_whole_range(kind, options):
    ends = [-3e38, -1e10, -100, -88.5, 88.5, 100, 1e10, 3e38, 0.0, -0.0, 1e-40, -1e-40]
    if kind == "gelu_tanh":
        ends = [value for value in ends if abs(value) < 1e12]  # its cube leaves float32
    x = np.concatenate([np.linspace(-12, 12, 4001), ends]).astype(np.float32)[None]
    with np.errstate(over="ignore"):
        ours = reference.run(one("activation", x.shape[1:], kind=kind, **options), x)
    theirs = activation(torch.from_numpy(x).double(), kind, **options).float().numpy()
    np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)


@st.composite
def windows(draw, most_dilation=1):
    """Settings of a pooling that torch accepts."""
    kernel, half, dilation, size = [], [], [], []
    for _ in range(2):
        kernel.append(draw(st.integers(1, 4)))
        half.append(draw(st.integers(0, kernel[-1] // 2)))
        dilation.append(draw(st.integers(1, most_dilation)))
        reach = (kernel[-1] - 1) * dilation[-1] + 1
        size.append(draw(st.integers(max(1, reach - 2 * half[-1]), 9)))
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    return tuple(kernel), stride, tuple(half), tuple(size), tuple(dilation), draw(st.booleans())


def looked_at(output, kernel, stride, half, size, dilation=(1, 1)) -> list[int]:
    """The padding of a graph that makes windows reach as far as torch's `output` says."""
    further = [
        max(0, (output[i] - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - size[i] - half[i])
        for i in (0, 1)
    ]
    return [*half, *further]


@MANY
@given(windows(most_dilation=2))
def test_max_pool_with_the_settings_of_torch(settings):
    kernel, stride, half, size, dilation, ceil = settings
    x = np.random.default_rng(0).standard_normal((2, 3, *size)).astype(np.float32)
    theirs = F.max_pool2d(torch.from_numpy(x), kernel, stride, half, dilation, ceil)
    assume(bool(theirs.isfinite().all()))  # windows on padding alone are refused
    padding = looked_at(theirs.shape[2:], kernel, stride, half, size, dilation)
    graph = one(
        "max_pool", x.shape[1:], kernel=kernel, stride=stride, padding=padding, dilation=dilation
    )
    np.testing.assert_array_equal(reference.run(graph, x), theirs.numpy())


@MANY
@given(windows(), st.booleans())
def test_avg_pool_with_the_settings_of_torch(settings, count_include_pad):
    kernel, stride, half, size, _, ceil = settings
    x = np.random.default_rng(0).standard_normal((2, 3, *size)).astype(np.float32)
    theirs = F.avg_pool2d(torch.from_numpy(x), kernel, stride, half, ceil, count_include_pad)
    padding = looked_at(theirs.shape[2:], kernel, stride, half, size)
    counted = [min(p, h) for p, h in zip(padding, [*half, *half], strict=True)]
    graph = one(
        "avg_pool", x.shape[1:], kernel=kernel, stride=stride, padding=padding,
        count_padding=counted if count_include_pad else [0] * 4,
    )  # fmt: skip
    assert_close(reference.run(graph, x), theirs)


def test_a_convolution_by_hand():
    # One 2x2 image, kernel (1 2; 0 0), padded by one row at the top and one column at the left.
    weight = np.array([[[[1, 2], [0, 0]]]], np.float32)
    tensors = {
        "weight": weight,
        "bias": np.array([10], np.float32),
        "plane": np.array([[[100, 0], [0, 0]]], np.float32),
    }
    graph = one(
        "conv", (1, 2, 2), tensors, stride=[1, 1], padding=[1, 1, 0, 0], dilation=[1, 1], groups=1
    )
    x = np.array([[[[1, 2], [3, 4]]]], np.float32)
    assert reference.run(graph, x).tolist() == [[[[110, 10], [12, 15]]]]


def test_any_batch_is_the_images_one_by_one():
    net = Builder((3, 6, 6))
    graph = net.graph(net.linear(net.add("flatten", net.conv("x", 4)), 5))
    x = batch(graph, 19)
    whole = reference.run(graph, x)
    alone = np.concatenate([reference.run(graph, x[i : i + 1]) for i in range(19)])
    np.testing.assert_allclose(whole, alone, rtol=1e-5, atol=1e-6)
    assert reference.run(graph, x[:0]).shape == (0, 5)


def test_a_value_that_is_the_output_and_read_again():
    net = Builder((1, 2, 2))
    y = net.activation("x")
    net.activation(y, "tanh")
    graph = net.graph(y)
    x = batch(graph, 1)
    np.testing.assert_array_equal(reference.run(graph, x), np.maximum(x, 0))


def test_resnet20_takes_well_under_a_second():
    net = Builder((3, 32, 32))
    x = net.activation(net.conv("x", 16))
    for channels, stride in [(16, 1)] * 3 + [(32, 2)] + [(32, 1)] * 2 + [(64, 2)] + [(64, 1)] * 2:
        y = net.activation(net.conv(x, channels, stride=(stride, stride)))
        y = net.conv(y, channels)
        if stride == 2:
            _, height, width = net.shapes[x]
            stop = [channels // 2, height, width]
            x = net.add("slice", x, start=[0, 0, 0], stop=stop, step=[1, 2, 2])
            x = net.add("pad", x, channels=[channels // 4] * 2, padding=[0] * 4)
        x = net.activation(net.add("add", [y, x]))
    x = net.add("flatten", net.add("adaptive_avg_pool", x, size=[1, 1]))
    graph = net.graph(net.linear(x, 10))
    image = batch(graph, 1)
    start = time.perf_counter()
    assert_close(reference.run(graph, image), in_torch(graph, image))
    assert time.perf_counter() - start < 5, "even on a busy machine"
