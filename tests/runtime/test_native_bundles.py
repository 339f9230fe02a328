"""Filters that share a list: what the lists hold, and which layers have them."""

from __future__ import annotations

import numpy as np
import pytest

from prunus_runtime import native
from prunus_runtime.native.interface import ConvParameters, Kernel
from prunus_runtime.plan.lists import fullness, make_lists
from prunus_runtime.planner import make_program
from support.graphs import Builder
from support.native_paths import ISAS


def test_the_lists_of_bundles_by_hand() -> None:
    """Three filters of three inputs in bundles of two: the last one has a filter of zeros."""
    weight = np.array([[1, 0, 2], [3, 0, 0], [0, 0, 4]], np.float32)[:, :, None, None]
    offsets = np.array([10, 20, 30])[:, None, None]
    lists = make_lists(weight, 1, offsets, bundle=2)
    assert lists.starts.tolist() == [0, 2, 3]
    assert lists.offsets.tolist() == [10, 30, 30]
    assert lists.values.tolist() == [[1, 3], [2, 0], [4, 0]]
    assert lists.channels.tolist() == [0, 2, 2]
    assert lists.bundle == 2 and len(lists) == 2
    assert fullness(weight, 2) == 4 / 6  # kept weights, of all that the lists hold
    alone = make_lists(weight, 1, offsets)
    assert alone.starts.tolist() == [0, 2, 3, 4]
    assert alone.entries.tolist() == [(10, 1), (30, 2), (10, 3), (30, 4)]


def test_filters_of_a_bundle_read_their_own_group() -> None:
    weight = np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1, 1)
    lists = make_lists(weight, 2, np.array([10, 20])[:, None, None], bundle=2)
    assert lists.offsets.tolist() == [10, 20]
    assert lists.values.tolist() == [[1, 2], [3, 4]]


def test_nothing_is_not_full() -> None:
    assert fullness(np.zeros((3, 2, 1, 1), np.float32), 2) == 0


@pytest.mark.skipif("avx512" not in ISAS, reason="bundles are as large as registers allow")
@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize(
    ("density", "groups", "bundle"),
    [(1.0, 1, 8), (0.9, 1, 8), (0.3, 1, 1), (1.0, 2, 8), (1.0, 16, 1), (0.0, 1, 1)],
)
def test_layers_that_are_not_sparse_have_them(
    density: float, groups: int, bundle: int, lanes: int
) -> None:
    net = Builder((16, 6, 6))
    net.conv("x", 16, density=density, groups=groups)
    program = make_program(net.graph(), "avx512", lanes, 1)
    [conv] = program.instructions[program.instructions["kernel"] == Kernel.CONV]
    assert conv["parameters"][ConvParameters._fields.index("bundle")] == bundle


@pytest.mark.skipif("avx512" not in ISAS, reason="the vector is that of avx512")
@pytest.mark.parametrize(
    ("size", "density", "lanes", "bundle"),
    [(4, 1.0, 1, 32), (2, 1.0, 4, 32), (4, 0.1, 1, 1), (4, 1.0, 16, 8), (32, 1.0, 1, 8)],
)
def test_vectors_are_of_filters_where_planes_are_small(
    size: int, density: float, lanes: int, bundle: int
) -> None:
    net = Builder((64, size, size))
    net.conv("x", 64, density=density)
    program = make_program(net.graph(), "avx512", lanes, 1)
    convs = program.instructions[program.instructions["kernel"] == Kernel.CONV]  # its passes
    assert set(convs["parameters"][:, ConvParameters._fields.index("bundle")]) == {bundle}


def test_portable_has_none() -> None:
    net = Builder((16, 6, 6))
    net.conv("x", 16, density=1.0)
    if not native.available():
        pytest.skip("the native core is not compiled")
    assert len(make_program(net.graph(), "portable", 1, 1).entries) > 16 * 16 * 9
