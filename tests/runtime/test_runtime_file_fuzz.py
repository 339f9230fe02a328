"""Damaged and hostile files: always a `RuntimeFileError` that says what is wrong, soon."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import random
import struct
import time
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunus_runtime import RuntimeFileError, reference
from prunus_runtime.file import MAGIC, MAX_HEADER, PREFIX, VERSION, decode, encode, load
from support.graphs import Builder, batch


def example() -> bytes:
    """Every way to store a tensor, and most operations."""
    net = Builder((2, 8, 8), seed=1)
    x = net.activation(net.conv("x", 6, density=0.05, plane=True), "clamp", low=0.0, high=6.0)
    x = net.add("max_pool", x, kernel=[2, 2], stride=[2, 2], padding=[0, 0, 1, 1], dilation=[1, 1])
    x = net.add("avg_pool", x, kernel=[2, 2], stride=[1, 1], padding=[1] * 4, count_padding=[0] * 4)
    y = net.conv(x, 6, groups=3, density=0.3)
    x = net.add("add", [x, y])
    x = net.add("slice", x, start=[0, 0, 0], stop=[4, 4, 4], step=[1, 1, 2])
    x = net.add("pad", x, channels=[1, 1], padding=[0, 1, 0, 1])
    x = net.add("concatenate", [x, x])
    x = net.add("affine", x, {"scale": net.vector(12)})
    x = net.add("flatten", net.add("adaptive_avg_pool", x, size=[2, 2]))
    x = net.linear(x, 5, density=1.0)
    return encode(net.graph(net.add("softmax", x, log=False)), "int8")


CONTENT = example()


def signed(body: bytes, version: int = VERSION) -> bytes:
    return PREFIX.pack(MAGIC, version, hashlib.sha256(body).digest()) + body


def unpacked(content: bytes) -> tuple[dict[str, Any], bytes]:
    raw = gzip.decompress(content[PREFIX.size :])
    size = int.from_bytes(raw[:4], "little")
    return json.loads(raw[4 : 4 + size]), raw[4 + size :]


def packed(header: object, payload: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return signed(gzip.compress(struct.pack("<I", len(text)) + text + payload, 1))


HEADER, PAYLOAD = unpacked(CONTENT)


def refused(content: bytes) -> str:
    with pytest.raises(RuntimeFileError) as raised:
        decode(content)
    message = str(raised.value)
    assert 10 < len(message) < 600
    assert message.isprintable()
    return message


def survives(content: bytes) -> bool:
    """It is refused, or it is a valid network that runs; nothing else happens."""
    try:
        graph = decode(content)
    except RuntimeFileError as error:
        assert 10 < len(str(error)) < 600
        return False
    output = graph.shapes[graph.output]
    if np.prod(graph.input_shape) < 10_000 and max(map(np.prod, graph.shapes.values())) < 10**6:
        with np.errstate(all="ignore"):
            assert reference.run(graph, batch(graph, 1)).shape == (1, *output)
    return True


def test_the_example_is_whole():
    assert survives(CONTENT)
    assert survives(packed(HEADER, PAYLOAD))


def test_a_file_is_named(tmp_path: Path):
    path = tmp_path / "model.prunus"
    for content in (b"", b"PRUNUS", CONTENT[:-1], CONTENT[:100], b"\x89PNG" + CONTENT):
        path.write_bytes(content)
        with pytest.raises(RuntimeFileError, match="^" + str(path) + ": the file|this is not"):
            load(path)


def test_what_is_wrong_is_said():
    assert "not a file of a deployed network" in refused(b"PK\x03\x04" + bytes(100))
    assert "format 2; this version reads 1" in refused(signed(CONTENT[PREFIX.size :], 2))
    assert "checksum" in refused(CONTENT + b"\0")
    assert "cannot be unpacked" in refused(signed(b"no gzip at all"))
    assert "ends too early" in refused(signed(gzip.compress(b"\1\0")))
    assert "the header would have" in refused(signed(gzip.compress(b"\xff" * 100)))
    assert "not JSON" in refused(packed(b"{", b""))
    assert "not JSON" in refused(packed(b"\xff\xfe", b""))
    assert "not JSON" in refused(packed(b"[" * 200_000, b""))
    assert "not JSON" in refused(packed(b"1" * 100_000, b""))
    assert "the header should have" in refused(packed([], b""))
    assert "the header should have" in refused(packed({**HEADER, "code": "import os"}, PAYLOAD))
    assert "`weight` ends too early" in refused(packed(HEADER, b""))
    assert "ends too early" in refused(packed(HEADER, PAYLOAD[:-1]))
    assert "more than its header says" in refused(packed(HEADER, PAYLOAD + b"\0"))


def test_every_cut_and_every_flipped_bit_is_seen():
    for length in range(0, len(CONTENT), 7):
        refused(CONTENT[:length])
    for place in range(0, len(CONTENT), 3):
        damaged = bytearray(CONTENT)
        damaged[place] ^= 1 << (place % 8)
        refused(bytes(damaged))


def test_damage_with_a_checksum_that_fits():
    rng = random.Random(0)
    body = CONTENT[PREFIX.size :]
    for _ in range(1500):
        damaged = bytearray(body)
        for _ in range(rng.choice([1, 1, 2, 10])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        survives(signed(bytes(damaged)))
    for _ in range(1500):
        payload = bytearray(PAYLOAD)
        start = rng.randrange(len(payload))
        end = min(len(payload), start + rng.choice([1, 2, 8, 64]))
        payload[start:end] = rng.randbytes(end - start) if rng.random() < 0.7 else b"\xff" * 8
        survives(packed(HEADER, bytes(payload)))


def test_values_that_are_not_finite_are_refused():
    bad = [
        survives(packed(HEADER, PAYLOAD[:i] + b"\xff" * 4 + PAYLOAD[i + 4 :])) for i in range(200)
    ]
    assert not all(bad)
    # The scale of int8, after one byte for each value.
    header = {
        "input": "x",
        "input_shape": [1],
        "output": "y",
        "operations": [
            {
                "kind": "linear",
                "inputs": ["x"],
                "output": "y",
                "attributes": {},
                "layer": "fc",
                "tensors": {
                    "weight": {
                        "shape": [1, 1],
                        "values": "int8",
                        "positions": "all",
                        "kept": 1,
                        "position_bytes": 0,
                    }
                },
            }
        ],
    }
    assert survives(packed(header, struct.pack("<bf", 3, 0.5)))
    for scale in (float("nan"), float("inf"), 3e38):
        message = refused(packed(header, struct.pack("<bf", 3, scale)))
        assert "'fc'): `weight` has values that are not finite" in message


NASTY = [
    None, True, False, 0, -1, 1, 2, 3, 7, 255, 2**20, 2**28, 2**31, 2**32, 2**63, 10**30, 10**400,
    0.5, -0.0, 1e308, "", "x", "v0", "conv", "relu", "weight", "\ud800", "\x1b[31m", "a" * 5000,
    [], [[]], [0], [1], [2, 2], [1, 1, 1, 1], [2**28], [2**14, 2**14], [-1, 2], {}, {"x": 1},
    "fp32", "fp16", "int8", "all", "bitmap", "gaps",
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    if isinstance(value, dict | list):
        for key, item in items:
            found += places(item, (*path, key)) if isinstance(item, dict | list) else [(*path, key)]
    return found


PLACES = places(HEADER)


def changed(header: Any, path: tuple[Any, ...], how: str, value: Any) -> Any:
    header = copy.deepcopy(header)
    parent = header
    for key in path[:-1]:
        if not isinstance(parent, dict | list) or (isinstance(parent, dict) and key not in parent):
            return header
        if isinstance(parent, list) and (not isinstance(key, int) or key >= len(parent)):
            return header
        parent = parent[key]
    key = path[-1]
    try:
        if how == "set":
            parent[key] = value
        elif how == "delete":
            del parent[key]
        elif how == "double" and isinstance(parent, list):
            parent.insert(key, copy.deepcopy(parent[key]))
        elif isinstance(parent, dict):
            parent[str(value)[:50]] = copy.deepcopy(parent[key])
    except (KeyError, IndexError, TypeError):
        pass
    return header


def test_every_field_of_the_header_with_every_nasty_value():
    rng = random.Random(0)
    refusals = 0
    start = time.monotonic()
    for path in PLACES:
        for value in rng.sample(NASTY, 12):
            refusals += not survives(packed(changed(HEADER, path, "set", value), PAYLOAD))
        refusals += not survives(packed(changed(HEADER, path, "delete", None), PAYLOAD))
    assert refusals > 0.9 * len(PLACES) * 13
    assert time.monotonic() - start < 200


change = st.tuples(
    st.sampled_from(PLACES),
    st.sampled_from(["set", "set", "delete", "double", "rename"]),
    st.one_of(st.sampled_from(NASTY), st.integers(-5, 40), st.lists(st.integers(0, 9), max_size=4)),
)


@settings(max_examples=400)
@given(st.lists(change, min_size=1, max_size=4), st.integers(0, len(PAYLOAD)))
def test_headers_with_several_changes(changes, cut):
    header = HEADER
    for path, how, value in changes:
        header = changed(header, path, how, value)
    survives(packed(header, PAYLOAD))
    survives(packed(header, PAYLOAD[:cut] + bytes(2000)))


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_any_bytes(content):
    refused(content)
    survives(signed(content))
    survives(signed(gzip.compress(content)))
    survives(packed(content, b""))


def peak(content: bytes) -> int:
    tracemalloc.start()
    try:
        refused(content)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def huge(shape: list[int], **fields: object) -> bytes:
    header = copy.deepcopy(HEADER)
    weight = header["operations"][0]["tensors"]["weight"]
    weight |= {"shape": shape, "positions": "gaps", "kept": 0, "position_bytes": 0, **fields}
    return packed(header, b"")


def test_small_files_cannot_take_much_memory():
    for content in (
        huge([2**14, 2**14, 1, 1]),  # does not fit the input
        huge([2**28]),
        huge([2**20, 2**20]),
        huge([2**27, 2, 1, 1], kept=2**28, positions="all"),
        huge([6, 2, 3, 3], kept=2**28),
        packed({**HEADER, "input_shape": [2**9, 2**10, 2**10]}, PAYLOAD),
        signed(gzip.compress(b"\xff\xff\xff\x7f" + bytes(10**7))),
    ):
        assert peak(content) < 2**24


def test_a_bomb_is_not_unpacked():
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(200)) + packer.flush()
    assert peak(signed(bomb)) < 2**24
    text = json.dumps(HEADER).encode()
    start = gzip.compress(struct.pack("<I", len(text)) + text + PAYLOAD)
    assert peak(signed(start + bomb)) < 2**24


def test_many_large_operations_take_no_time():
    pool = {"kernel": [1, 2], "stride": [1, 1], "padding": [0, 1, 0, 0], "dilation": [1, 1]}
    operations = [
        {
            "kind": "max_pool",
            "inputs": ["x"],
            "output": f"v{i}",
            "attributes": pool,
            "layer": "",
            "tensors": {},
        }
        for i in range(20_000)
    ]
    shape = [1, 1, 2**20 - 1]
    header = {"input": "x", "input_shape": shape, "operations": operations, "output": "gone"}
    start = time.monotonic()
    assert "'gone' is made by no operation" in refused(packed(header, b""))
    assert time.monotonic() - start < 60


def test_many_tensors_are_too_many_in_all():
    header = copy.deepcopy(HEADER)
    first = header["operations"][0]
    weight = {**first["tensors"]["weight"], "shape": [2**14, 2**14]}
    weight |= {"positions": "gaps", "kept": 0, "position_bytes": 0}
    first["tensors"] = {f"weight{i}": weight for i in range(3)}
    content = packed(header, b"")
    assert "all tensors have 8053" in refused(content)
    assert peak(content) < 2**24
    assert len(content) < MAX_HEADER
