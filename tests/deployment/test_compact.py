"""Compaction: exact for every network, and as small as possible for those worked out by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings

from prunus.deployment.compact import compact
from prunus.deployment.fold import fold
from prunus_runtime import reference
from prunus_runtime.graph import Graph, Operation
from support.graphs import Builder, batch, graphs

MANY = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def numbers(graph: Graph) -> int:
    return sum(int(np.count_nonzero(t)) for o in graph.operations for t in o.tensors.values())


def assert_same(graph: Graph, other: Graph) -> None:
    other.check()
    x = batch(graph, 3)
    expected, found = reference.run(graph, x), reference.run(other, x)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-4 * max(1.0, np.abs(expected).max())


def compacted(graph: Graph) -> dict[str, Operation]:
    """The operations by output, after checking that they compute the same."""
    small = compact(graph)
    assert_same(graph, small)
    return {operation.output: operation for operation in small.operations}


@MANY
@given(graphs())
def test_compacting_changes_no_output_and_once_is_enough(graph: Graph) -> None:
    small = compact(graph)
    assert_same(graph, small)
    assert numbers(compact(small)) == numbers(small)


@MANY
@given(graphs())
def test_folding_changes_no_output(graph: Graph) -> None:
    assert_same(graph, fold(graph))


def dead_filter(size: int, kernel: int, padding: int, readers: int = 3) -> Builder:
    """Filter 1 of 4 is empty and outputs relu(2); a convolution with all its weights reads it."""
    net = Builder((2, size, size))
    x = net.conv("x", 4, density=1.0)
    net.operations[0].tensors["weight"][1] = 0
    net.operations[0].tensors["bias"][1] = 2.0
    x = net.activation(x)
    net.conv(x, readers, (kernel, kernel), padding=(padding,) * 4, density=1.0)
    return net


def test_a_constant_goes_into_the_bias_where_there_is_no_padding() -> None:
    graph = dead_filter(6, kernel=3, padding=0).graph()
    small = compacted(graph)
    assert small["v0"].tensors["weight"].shape == (3, 2, 3, 3)
    reader = small["v2"]
    assert reader.tensors["weight"].shape == (3, 3, 3, 3) and "plane" not in reader.tensors
    weight, bias = graph.operations[2].tensors["weight"], graph.operations[2].tensors["bias"]
    np.testing.assert_allclose(
        reader.tensors["bias"], bias + 2 * weight[:, 1].sum((1, 2)), rtol=1e-5
    )


def test_at_the_border_of_zero_padding_naive_folding_would_be_wrong() -> None:
    graph = dead_filter(2, kernel=3, padding=1, readers=1).graph()
    weight = graph.operations[2].tensors["weight"]
    # At the top left corner of 2x2 pixels the kernel sees its lower right four weights.
    corner, everything = 2 * weight[0, 1, 1:, 1:].sum(), 2 * weight[0, 1].sum()
    assert abs(corner - everything) > 0.1
    reader = compacted(graph)["v2"]
    assert reader.tensors["weight"].shape == (1, 3, 3, 3)
    total = reader.tensors["bias"][0] + reader.tensors["plane"][0]
    assert np.isclose(total[0, 0], graph.operations[2].tensors["bias"][0] + corner)


def test_a_filter_stays_where_a_plane_would_be_larger_than_its_weights() -> None:
    small = compacted(dead_filter(12, kernel=3, padding=1).graph())
    assert small["v0"].tensors["weight"].shape == (4, 2, 3, 3)
    assert "plane" not in small["v2"].tensors


def test_zeros_need_no_plane() -> None:
    net = dead_filter(12, kernel=3, padding=1)
    net.operations[0].tensors["bias"][1] = -1.0  # relu(-1) = 0
    assert compacted(net.graph())["v0"].tensors["weight"].shape == (3, 2, 3, 3)


def test_a_constant_through_padded_average_pooling() -> None:
    net = Builder((2, 4, 4))
    x = net.conv("x", 3, density=1.0)
    net.operations[0].tensors["weight"][0] = 0
    net.operations[0].tensors["bias"][0] = 3.0
    sides = [1, 1, 1, 1]
    x = net.add(
        "avg_pool", x, kernel=[2, 2], stride=[2, 2], padding=sides, count_padding=sides
    )  # fmt: skip
    net.linear(net.add("flatten", x), 2, density=1.0)
    small = compacted(net.graph())
    assert small["v0"].tensors["weight"].shape[0] == 2
    assert small["v3"].tensors["weight"].shape == (2, 18)


def test_channels_that_nothing_reads_vanish_through_a_residual_connection() -> None:
    net = Builder((3, 5, 5))
    stem = net.conv("x", 4, density=1.0)
    inner = net.conv(net.activation(stem), 4, density=1.0)
    total = net.add("add", [inner, stem])
    last = net.conv(total, 2, density=1.0)
    net.operations[-1].tensors["weight"][:, 2] = 0  # nothing reads channel 2 of the sum ...
    graph = net.graph(last)
    assert compacted(graph)["v0"].tensors["weight"].shape[0] == 4  # ... but `inner` does
    net.operations[2].tensors["weight"][:, 2] = 0
    small = compacted(net.graph(last))
    assert small[stem].tensors["weight"].shape == (3, 3, 3, 3)
    assert small[inner].tensors["weight"].shape == (3, 3, 3, 3)


def test_depthwise_convolutions_lose_channels_and_grouped_ones_groups() -> None:
    net = Builder((3, 5, 5))
    x = net.conv("x", 6, density=1.0)
    depthwise = net.conv(x, 6, groups=6, density=1.0)
    last = net.conv(depthwise, 4, groups=2, density=1.0)
    classes = net.linear(net.add("flatten", last), 2, density=1.0)
    net.operations[-1].tensors["weight"][:, 50:] = 0  # channels 2 and 3: the second group
    small = compacted(net.graph(classes))
    assert small[last].attributes["groups"] == 1
    assert small[last].tensors["weight"].shape == (2, 3, 3, 3)
    assert small[depthwise].attributes["groups"] == 3
    assert small[x].tensors["weight"].shape == (3, 3, 3, 3)


def test_concatenation_slicing_and_padding_follow_the_channels() -> None:
    net = Builder((2, 4, 4))
    a, b = net.conv("x", 3, density=1.0), net.conv("x", 3, density=1.0)
    joined = net.add("concatenate", [a, b])
    wider = net.add("pad", joined, channels=[1, 1], padding=[0, 0, 1, 0])
    part = net.add("slice", wider, start=[2, 0, 0], stop=[8, 5, 4], step=[1, 1, 1])
    last = net.conv(part, 2, density=1.0)
    net.operations[-1].tensors["weight"][:, 2] = 0  # the first of b
    small = compacted(net.graph(last))
    assert small[a].tensors["weight"].shape[0] == 2  # its first is cut off by the slice
    assert small[b].tensors["weight"].shape[0] == 2
    assert small[last].tensors["weight"].shape[1] == 4


def test_an_empty_layer_removes_everything_before_it() -> None:
    net = Builder((3, 8, 8))
    x = net.activation(net.conv("x", 5, density=1.0))
    x = net.activation(net.conv(x, 6, density=0.0))
    x = net.add("flatten", net.add("adaptive_avg_pool", x, size=[1, 1]))
    last = net.linear(x, 4, density=1.0)
    small = compact(net.graph(last))
    assert_same(net.graph(last), small)
    assert numbers(small) == 4 and len(small.operations) == 3


def test_a_constant_branch_becomes_a_bias() -> None:
    net = Builder((3, 6, 6))
    alive = net.conv("x", 4, density=1.0)
    dead = net.conv("x", 4, density=0.0)
    total = net.add("add", [dead, alive])
    small = compact(net.graph(total))
    assert_same(net.graph(total), small)
    assert [o.kind for o in small.operations] == ["conv"]


def test_a_shift_is_folded_unless_padding_follows_it() -> None:
    for padding, kinds in ((1, ["affine", "conv"]), (0, ["conv"])):
        net = Builder((3, 6, 6))
        x = net.add("affine", "x", {"scale": net.vector(3), "shift": net.vector(3)})
        net.conv(x, 4, padding=(padding,) * 4, density=1.0)
        folded = fold(net.graph())
        assert_same(net.graph(), folded)
        assert [o.kind for o in folded.operations] == kinds
