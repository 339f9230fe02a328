"""The native core against the numpy reference, on random networks of every operation."""

import numpy as np
import pytest
from hypothesis import example, given, settings

from prunus_runtime import Deployed
from prunus_runtime.graph import Graph
from support.graphs import Builder, batch, graphs
from support.native_paths import BATCHES, ISAS, everything_split, runs
from support.rounding import Values, run_bounded
from support.transformers import transformers


def differences(features: int) -> Builder:
    """One number, times 30 * (0.1 + 0.7 + 0.9) in `features` orders: equal but for rounding."""
    net = Builder((1, 2))
    weight = 30 * np.array([[0.1, 0.7, 0.9], [0.9, 0.1, 0.7], [0.7, 0.9, 0.1]], np.float32)
    same = net.add("linear", "x", {"weight": np.ones((3, 1), np.float32)})
    net.add("linear", same, {"weight": weight[:features]})
    return net


def normed_rounding() -> Graph:
    net = differences(3)
    return net.graph(net.add("norm", "v1", epsilon=1e-6, centred=True))


def rounding_alone() -> Graph:
    net = differences(2)
    return net.graph(net.add("linear", "v1", {"weight": np.array([[1, -1]], np.float32)}))


@pytest.mark.parametrize("isa", ISAS)
@given(graph=graphs())
@settings(max_examples=200)
def test_random_networks(isa: str, graph: Graph) -> None:
    check(isa, graph)


@pytest.mark.parametrize("isa", ISAS)
@given(graph=transformers())
@example(graph=normed_rounding())
@example(graph=rounding_alone())
@settings(max_examples=200)
def test_random_transformers(isa: str, graph: Graph) -> None:
    check(isa, graph)


def check(isa: str, graph: Graph) -> None:
    x = batch(graph, max(BATCHES))
    expected, bound = run_bounded(graph, x)
    for n, found in runs(isa, graph, x):
        assert_close(found, expected[:n], bound[:n])
    if graph.tokens is not None and graph.tokens.shorter:
        shared = Deployed(graph, 3, isa=isa)
        for length in {1, (x.shape[1] + 1) // 2}:
            some = np.ascontiguousarray(x[:17, :length])
            with everything_split():
                assert_close(shared(some), *run_bounded(graph, some))


def assert_close(found: np.ndarray, expected: np.ndarray, bound: Values) -> None:
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    error = np.abs(found.astype(np.float64) - expected)
    assert (error <= bound).all(), f"{error.max():.3g}, of {bound[error > bound].min():.3g}"
