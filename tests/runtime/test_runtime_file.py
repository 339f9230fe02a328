"""The file of a deployed network: exact, small, whole or not there at all."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from prunus_runtime import Graph, Operation, RuntimeFileError, reference, storage
from prunus_runtime.file import decode, encode, load, save
from prunus_runtime.storage import Stored
from support.graphs import Builder, batch, graphs


def assert_same(one: Graph, other: Graph) -> None:
    assert (one.input, one.input_shape, one.output) == (
        other.input,
        other.input_shape,
        other.output,
    )
    for a, b in zip(one.operations, other.operations, strict=True):
        assert (a.kind, a.inputs, a.output, a.layer) == (b.kind, b.inputs, b.output, b.layer)
        assert a.attributes == b.attributes
        assert list(a.tensors) == list(b.tensors)
        for name, tensor in a.tensors.items():
            assert b.tensors[name].dtype == np.float32
            np.testing.assert_array_equal(tensor, b.tensors[name])


@settings(max_examples=100)
@given(graphs())
def test_fp32_is_exact(graph):
    content = encode(graph)
    again = decode(content)
    assert_same(graph, again)
    assert encode(again) == content
    x = batch(graph, 2)
    np.testing.assert_array_equal(reference.run(graph, x), reference.run(again, x))


def stored_again(tensor: np.ndarray, store: str) -> tuple[Stored, np.ndarray]:
    stored, parts = storage.encode(tensor, store)
    content = b"".join(parts)
    place = 0

    def read(size: int) -> bytes:
        nonlocal place
        place += size
        assert place <= len(content)
        return content[place - size : place]

    assert Stored.parse(stored.described()) == stored
    result = storage.decode(stored, read)
    assert place == len(content)
    return stored, result


tensors = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=1, max_dims=4, max_side=40),
    elements=st.floats(-1000, 1000, width=32),
    fill=st.just(0.0),
)


@settings(max_examples=200)
@given(tensors)
def test_tensors_come_back(tensor):
    np.testing.assert_array_equal(stored_again(tensor, "fp32")[1], tensor)
    half = tensor.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(stored_again(tensor, "fp16")[1], half)
    rows = np.abs(tensor.reshape(len(tensor), -1))
    error = np.abs(stored_again(tensor, "int8")[1] - tensor).reshape(len(tensor), -1)
    assert (error.max(axis=1) <= rows.max(axis=1) / 127 * 0.501 + 1e-37).all()


@pytest.mark.parametrize(
    ("density", "positions"),
    [(0.0, "gaps"), (0.001, "gaps"), (0.02, "gaps"), (0.3, "bitmap"), (1.0, "all")],
)
def test_positions_are_the_smallest(density, positions):
    random = np.random.default_rng(0)
    tensor = (random.random((10, 1000)) < density).astype(np.float32)
    stored, again = stored_again(tensor, "fp32")
    assert stored.positions == positions
    np.testing.assert_array_equal(again, tensor)


@pytest.mark.parametrize("gap", [0, 1, 253, 254, 255, 256, 509, 510, 511, 5000])
def test_gaps_of_all_lengths(gap):
    tensor = np.zeros(6000, np.float32)
    tensor[[0, 1 + gap]] = 1, 2
    stored, again = stored_again(tensor, "fp32")
    assert stored.position_bytes == 2 + gap // 255
    np.testing.assert_array_equal(again, tensor)


def test_int8_by_hand():
    weight = np.array([[127.0, -1.0, 0.4, 63.6], [0.0, 0.0, 0.0, 0.0]], np.float32)
    stored, again = stored_again(weight, "int8")
    assert again.tolist() == [[127.0, -1.0, 0.0, 64.0], [0.0, 0.0, 0.0, 0.0]]
    assert stored.kept == 3, "what is rounded to zero is not stored"


def test_only_weights_are_rounded():
    net = Builder((2, 4, 4))
    x = net.conv("x", 3, plane=True)
    x = net.add("affine", x, {"scale": net.vector(3), "shift": net.vector(3)})
    graph = net.graph(x)
    for store in ("fp16", "int8"):
        again = decode(encode(graph, store))
        conv = again.operations[0].tensors
        assert (conv["weight"] != graph.operations[0].tensors["weight"]).any()
        for name in ("bias", "plane"):
            np.testing.assert_array_equal(conv[name], graph.operations[0].tensors[name])
        np.testing.assert_array_equal(
            again.operations[1].tensors["scale"], graph.operations[1].tensors["scale"]
        )
        assert_same(again, decode(encode(again, store)))


@pytest.mark.parametrize("store", ["fp16", "int8"])
def test_values_that_are_too_large_are_an_error(tmp_path, store):
    weight = np.full((1, 1), np.finfo(np.float32).max, np.float32)
    graph = Graph("x", (1,), (Operation("linear", ("x",), "y", {}, {"weight": weight}, "fc"),), "y")
    path = tmp_path / "model.prunus"
    with pytest.raises(RuntimeFileError, match=f"'fc'.*`weight` has values.* {store}.*as fp32"):
        save(graph, path, store)
    assert list(tmp_path.iterdir()) == []
    assert_same(load(save(graph, path)), graph)


def small_graph() -> Graph:
    net = Builder((1, 4, 4))
    return net.graph(net.linear(net.add("flatten", net.conv("x", 2)), 3))


def test_saving_checks_its_arguments(tmp_path):
    path = tmp_path / "model.prunus"
    with pytest.raises(RuntimeFileError, match="store is 'fp8', not one of fp32, fp16, int8"):
        save(small_graph(), path, "fp8")
    graph = small_graph()
    graph.operations[0].tensors["bias"][0] = np.nan
    with pytest.raises(RuntimeFileError, match=r"model.prunus: cannot be written: operation 0"):
        save(graph, path)
    assert not path.exists()


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "model.prunus"
    save(small_graph(), path)
    before = path.read_bytes()

    def fail(_: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="the disk is full"):
        save(small_graph(), path, "int8")
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["model.prunus"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.prunus"):
        load(tmp_path / "gone.prunus")


def test_vgg_at_98_percent_is_20_times_smaller_and_35_times_with_fp16():
    net = Builder((3, 32, 32))
    x = "x"
    for filters in [64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512]:
        if filters:
            x = net.activation(net.conv(x, filters, density=0.02))
        else:
            x = net.add(
                "max_pool", x, kernel=[2, 2], stride=[2, 2], padding=[0] * 4, dilation=[1, 1]
            )
    x = net.add("flatten", net.add("adaptive_avg_pool", x, size=[1, 1]))
    graph = net.graph(net.linear(x, 10, density=1.0))
    dense = sum(tensor.nbytes for one in graph.operations for tensor in one.tensors.values())
    assert dense > 4 * 14_700_000
    assert dense / len(encode(graph)) > 40
    assert dense / len(encode(graph, "fp16")) > 65
    assert dense / len(encode(graph, "int8")) > 90
