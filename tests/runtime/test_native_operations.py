"""The native core: convolutions against torch, small cases by hand, and mistakes of callers."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from prunus_runtime import Deployed, reference
from prunus_runtime.errors import GraphError, InputError
from prunus_runtime.executor import Executor
from prunus_runtime.graph import Graph, Operation
from prunus_runtime.native.interface import Kernel
from support.graphs import Builder
from support.native_paths import BATCHES, ISAS

KERNELS = ((1, 1), (3, 3), (5, 5), (7, 7), (1, 3), (5, 2))
STRIDES = ((1, 1), (2, 2), (3, 3), (1, 2))
PADDINGS = ((0, 0, 0, 0), (1, 1, 1, 1), (3, 3, 3, 3), (2, 0, 1, 3))


def single(operation: Operation, shape: tuple[int, ...]) -> Graph:
    return Graph("x", shape, (operation,), operation.output)


def conv(weight: np.ndarray, **changes: object) -> Operation:
    attributes = {"stride": [1, 1], "padding": [0] * 4, "dilation": [1, 1], "groups": 1, **changes}
    return Operation("conv", ("x",), "y", attributes, {"weight": weight.astype(np.float32)})


def torch_conv(x: np.ndarray, operation: Operation) -> np.ndarray:
    attributes = operation.attributes
    top, left, bottom, right = attributes["padding"]
    padded = F.pad(torch.from_numpy(x), (left, right, top, bottom))
    y = F.conv2d(
        padded,
        torch.from_numpy(operation.tensors["weight"]),
        stride=tuple(attributes["stride"]),
        dilation=tuple(attributes["dilation"]),
        groups=attributes["groups"],
    )
    return y.numpy()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_convolutions(isa: str, kernel: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((17, 4, 13, 9)).astype(np.float32)
    for stride, padding, dilation, groups in itertools.product(
        STRIDES, PADDINGS, ((1, 1), (2, 1)), (1, 2, 4)
    ):
        if (kernel[0] - 1) * dilation[0] >= 13 + padding[0] + padding[2]:
            continue
        weight = random.standard_normal((8, 4 // groups, *kernel))
        weight *= random.random(weight.shape) < 0.4
        weight[3] = 0
        operation = conv(
            weight,
            **{"stride": [*stride], "padding": [*padding], "dilation": [*dilation]},
            groups=groups,
        )
        network = Deployed(single(operation, (4, 13, 9)), 1, isa=isa)
        expected = torch_conv(x, operation)
        np.testing.assert_allclose(network(x), expected, rtol=0, atol=1e-4)
        np.testing.assert_allclose(network(x[:1]), expected[:1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", [1, 2, 4, 7, 8, 14, 16, 31, 32, 56])
def test_a_residual_block_at_every_size_and_batch(isa: str, size: int) -> None:
    random = np.random.default_rng(1)
    net = Builder((3, size, size))
    first = net.activation(net.conv("x", 16))
    second = net.activation(net.conv(first, 16))
    graph = net.graph(net.activation(net.add("add", [net.conv(second, 16), first])))
    x = random.standard_normal((128, 3, size, size)).astype(np.float32)
    weights = [o.tensors for o in graph.operations if o.kind == "conv"]
    tensors = [(torch.from_numpy(t["weight"]), torch.from_numpy(t["bias"])) for t in weights]
    a = F.relu(F.conv2d(torch.from_numpy(x), *tensors[0], padding=1))
    b = F.relu(F.conv2d(a, *tensors[1], padding=1))
    expected = F.relu(F.conv2d(b, *tensors[2], padding=1) + a).numpy()
    network = Deployed(graph, 2, isa=isa)
    for n in BATCHES:
        np.testing.assert_allclose(network(x[:n]), expected[:n], rtol=0, atol=1e-4)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", [1, 17])
def test_a_sum_with_what_its_own_convolution_reads(isa: str, n: int) -> None:
    """The sum must not take the place of a value that other filters still read."""
    net = Builder((3, 8, 8))
    first = net.activation(net.conv("x", 16))
    graph = net.graph(net.add("add", [first, net.conv(first, 16)]))
    x = np.random.default_rng(1).standard_normal((n, 3, 8, 8)).astype(np.float32)
    found = Deployed(graph, 2, isa=isa)(x)
    np.testing.assert_allclose(found, reference.run(graph, x), rtol=0, atol=1e-4)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", [1, 16])
def test_a_window_by_hand(isa: str, n: int) -> None:
    # Two kept weights: the pixel above (times 2) and the pixel to the right (times 10).
    weight = np.zeros((1, 1, 3, 3))
    weight[0, 0, 0, 1], weight[0, 0, 1, 2] = 2, 10
    x = np.tile(np.array([[[[1, 2], [3, 4]]]], np.float32), (n, 1, 1, 1))
    y = Deployed(single(conv(weight, padding=[1] * 4), (1, 2, 2)), 1, isa=isa)(x)
    assert y.tolist() == [[[[20, 0], [42, 4]]]] * n


@pytest.mark.parametrize("isa", ISAS)
def test_no_weights_at_all(isa: str) -> None:
    network = Deployed(single(conv(np.zeros((3, 2, 3, 3)), padding=[1] * 4), (2, 5, 5)), isa=isa)
    for n in (0, 1, 16):
        assert not network(np.ones((n, 2, 5, 5), np.float32)).any()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", [1, 16])
def test_pooling_keeps_what_is_not_a_number_and_never_sees_its_padding(isa: str, n: int) -> None:
    options = {"kernel": [3, 3], "stride": [2, 2], "padding": [1] * 4, "dilation": [1, 1]}
    network = Deployed(single(Operation("max_pool", ("x",), "y", options), (1, 4, 4)), 1, isa=isa)
    x = np.full((n, 1, 4, 4), -5, np.float32)
    assert (network(x) == -5).all()
    x[0, 0, 0, 0] = np.nan
    assert np.isnan(network(x)[0, 0]).tolist() == [[True, False], [False, False]]


@pytest.mark.parametrize("isa", ISAS)
def test_garbage_of_one_run_is_not_seen_by_the_next(isa: str) -> None:
    graph = single(conv(np.ones((2, 2, 3, 3)), padding=[1] * 4), (2, 5, 6))
    network = Deployed(graph, 1, isa=isa)
    x = np.random.default_rng(0).standard_normal((17, 2, 5, 6)).astype(np.float32)
    before = network(x)
    network(np.full_like(x, np.inf))
    np.testing.assert_array_equal(network(x), before)


def test_wrong_inputs() -> None:
    graph = single(conv(np.ones((1, 2, 1, 1))), (2, 5, 6))
    with pytest.raises(InputError, match=r"\(2, 5, 6\).*\(n, 2, 5, 6\)"):
        Deployed(graph)(np.zeros((2, 5, 6), np.float32))
    with pytest.raises(ValueError, match="threads is 0"):
        Deployed(graph, 0)
    with pytest.raises(ValueError, match=r"isa is 'mmx'.*avx512, avx2, portable"):
        Deployed(graph, isa="mmx")


def test_an_unknown_operation_is_named_with_its_layer() -> None:
    operation = Operation("einsum", ("x",), "y", layer="encoder.attention")
    with pytest.raises(GraphError, match=r"einsum.*encoder\.attention"):
        Deployed(single(operation, (3, 4, 4)))


def test_an_instruction_set_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRUNUS_ISA", "portable")
    network = Deployed(single(conv(np.ones((1, 1, 1, 1))), (1, 2, 2)))
    assert network.backend == "native portable"


@pytest.mark.parametrize("isa", ISAS)
def test_layers_without_weights_read_nothing(isa: str) -> None:
    """They put out their bias and plane; what only they would read is not computed."""
    net = Builder((2, 6, 6), 0)
    pooled = net.add("adaptive_avg_pool", "x", size=[3, 3])
    plane = np.arange(16, dtype=np.float32).reshape(4, 2, 2)
    bias = np.array([1, 2, 3, 4], np.float32)
    tensors = {"weight": np.zeros((4, 2, 3, 3), np.float32), "bias": bias, "plane": plane}
    attributes = {"stride": [2, 2], "padding": [1] * 4, "dilation": [1, 1], "groups": 1}
    constant = net.add("conv", pooled, tensors, **attributes)
    graph = net.graph(net.activation(constant))
    network = Deployed(graph, isa=isa)
    x = np.full((17, 2, 6, 6), np.nan, np.float32)
    for n in BATCHES[:-1]:
        expected = np.broadcast_to(bias[:, None, None] + plane, (n, 4, 2, 2))
        np.testing.assert_array_equal(network(x[:n]), expected)
    kernels = Executor(graph, isa=isa).program(1).instructions["kernel"]
    assert Kernel.AVG_POOL not in kernels
