"""The native core against the numpy reference, on random networks of every operation."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings

from prunus_runtime import Deployed, reference
from prunus_runtime.graph import Graph
from support.graphs import batch, graphs
from support.native_paths import BATCHES, ISAS, everything_split
from support.transformers import transformers


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    """Within 1e-4 of the output's scale."""
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    scale = max(np.abs(expected).max(initial=0), 1e-2)  # of a sum that cancels, rounding is left
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * scale)


@pytest.mark.parametrize("isa", ISAS)
@given(graph=graphs())
@settings(max_examples=200)
def test_random_networks(isa: str, graph: Graph) -> None:
    check(isa, graph)


@pytest.mark.parametrize("isa", ISAS)
@given(graph=transformers())
@settings(max_examples=200)
def test_random_transformers(isa: str, graph: Graph) -> None:
    check(isa, graph)


def assume_spread(graph: Graph) -> Callable[[str, np.ndarray], None]:
    """Of inputs that are equal but for rounding, a norm leaves the rounding, many times as large:
    there is nothing to compare then."""
    centred = {
        o.inputs[0] for o in graph.operations if o.kind == "norm" and o.attributes["centred"]
    }

    def see(name: str, value: np.ndarray) -> None:
        if name in centred:
            assume(np.abs(value).max() < 300 * np.sqrt(value.var(axis=1).min() + 1e-6))

    return see


def check(isa: str, graph: Graph) -> None:
    x = batch(graph, max(BATCHES))
    expected = reference.run(graph, x, assume_spread(graph))
    alone, shared, bundled = (Deployed(graph, threads, isa=isa) for threads in (1, 3, 2))
    for n in BATCHES:
        assert_close(alone(x[:n]), expected[:n])
        with everything_split():
            assert_close(shared(x[:n]), expected[:n])
        with everything_split(bundled=True):
            assert_close(bundled(x[:n]), expected[:n])
    if graph.tokens is not None and graph.tokens.shorter:
        for length in {1, (x.shape[1] + 1) // 2}:
            some = np.ascontiguousarray(x[:17, :length])
            assert_close(shared(some), reference.run(graph, some))
