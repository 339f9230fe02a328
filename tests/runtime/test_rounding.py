"""The bounds that the native core is held to, by hand."""

import numpy as np
import pytest

from prunus_runtime import reference
from prunus_runtime.graph import Graph
from support.graphs import Builder, batch
from support.rounding import OFTEN, ONCE, run_bounded

ROWS = np.array([[3, -3], [0, 2]], np.float32)


def bound_of(net: Builder, *x: float) -> list[float]:
    return run_bounded(net.graph(), np.array([x], np.float32))[1][0].tolist()


def test_what_cancels_leaves_the_rounding_of_its_terms() -> None:
    net = Builder((2,))
    net.add("linear", "x", {"weight": ROWS, "bias": np.array([1, 0], np.float32)})
    two = OFTEN + 2 * ONCE  # of no sum are there more terms
    assert bound_of(net, 5, 5) == pytest.approx([two * (15 + 15 + 1), two * 10])


def test_layers_enlarge_errors_and_clamps_do_not() -> None:
    net = Builder((2,))
    first = net.activation(net.add("linear", "x", {"weight": ROWS}))
    net.add("linear", first, {"weight": np.array([[-7, 1]], np.float32)})
    two = OFTEN + 2 * ONCE
    # The first feature is 3 * 5 - 3 * 1 = 12, the second 2.
    assert bound_of(net, 5, 1) == pytest.approx([7 * two * 18 + two * 2 + two * (7 * 12 + 2)])


def test_a_norm_divides_by_no_less_than_the_root_of_epsilon() -> None:
    net = Builder((2,))
    net.add("norm", "x", epsilon=1e-4, centred=True)
    error = 2 * (OFTEN + 2 * ONCE) * 5  # of an input, and of their mean
    assert bound_of(net, 5, 5) == pytest.approx([error / 1e-2] * 2)


def test_sure_probabilities_are_sure_of_their_errors_too() -> None:
    net = Builder((2,))
    net.add("softmax", "x", log=False)
    least = bound_of(net, 40, 0)[1]
    assert 0 < least < 1e-20
    assert least / np.exp(-40) < 1e-3


def test_a_weight_that_is_slightly_wrong_is_found() -> None:
    def network(factor: float) -> Graph:
        net = Builder((3, 6, 6))
        first = net.activation(net.conv("x", 8), "gelu")
        second = net.conv(net.activation(net.conv(first, 8)), 8)
        graph = net.graph(net.add("add", [first, second]))
        weight = graph.operations[0].tensors["weight"]
        weight[np.unravel_index(np.abs(weight).argmax(), weight.shape)] *= factor
        return graph

    x = batch(network(1), 2)
    expected, bound = run_bounded(network(1), x)
    assert (np.abs(reference.run(network(1.001), x) - expected) > bound).any()
