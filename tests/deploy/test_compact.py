"""Compaction: exact for every network, and as small as it should be for those worked out by hand."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings

from deploy.graphs import Builder, batch, graphs
from prunus.deployment.compact import compact
from prunus.deployment.fold import fold
from prunus.deployment.module import to_module
from prunus_runtime import reference
from prunus_runtime.graph import Array, Graph
from prunus_runtime.shapes import shapes

torch.set_num_threads(1)
MANY = settings(
    max_examples=150, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


def weights(graph: Graph) -> int:
    return sum(int(np.count_nonzero(t)) for o in graph.operations for t in o.tensors.values())


def assert_same(graph: Graph, other: Graph) -> None:
    x = batch(graph, 3)
    expected, found = reference.run(graph, x), reference.run(other, x)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-4 * max(1.0, np.abs(expected).max())


@MANY
@given(graphs())
def test_compacting_changes_no_output(graph: Graph) -> None:
    small = compact(graph)
    shapes(small)
    assert_same(graph, small)
    assert compact(small) is not None
    assert weights(compact(small)) == weights(small)


@MANY
@given(graphs())
def test_folding_changes_no_output(graph: Graph) -> None:
    folded = fold(graph)
    shapes(folded)
    assert_same(graph, folded)
