"""Small `.prunus` files that describe something huge: refused before memory or time is spent."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prunus_runtime
from prunus_runtime import Limits, RuntimeFileError, reference
from prunus_runtime.__main__ import main
from prunus_runtime.file import MAGIC, PREFIX, VERSION, decode, encode
from prunus_runtime.limits import PLANNED
from support.graphs import Builder
from support.processes import run

RUN = """
import resource, sys, time
import numpy as np
import prunus_runtime
from support.memory import peak
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
resource.setrlimit(resource.RLIMIT_CPU, (150, 150))
before, start = peak(), time.process_time()
for path in sys.argv[1:]:
    try:
        network = prunus_runtime.load(path, threads=1)
        network(np.zeros((1, *network.input_shape), np.float32))
        print("ran")
    except prunus_runtime.RuntimeFileError as error:
        print("refused")
print(peak() - before, time.process_time() - start)
"""


def cost(*paths: Path) -> tuple[list[str], float, float]:
    """What loading and running each file ends with; memory (MB) and processor time (s) of all."""
    *outcomes, memory, seconds = run("-W", "ignore", "-c", RUN, *paths).split()
    return outcomes, float(memory), float(seconds)


def content(shape: list[int], *operations: dict[str, Any], payload: bytes = b"") -> bytes:
    """A file with a valid checksum over anything."""
    header = {"input": "x", "input_shape": shape, "operations": operations}
    text = json.dumps({**header, "output": operations[-1]["output"]}).encode()
    body = gzip.compress(struct.pack("<I", len(text)) + text + payload, mtime=0)
    return PREFIX.pack(MAGIC, VERSION, hashlib.sha256(body).digest()) + body


def operation(
    name: str, inputs: list[str], output: str, tensors: dict[str, Any] | None = None, **rest: Any
) -> dict[str, Any]:
    empty = {"kind": name, "inputs": inputs, "output": output, "layer": ""}
    return {**empty, "attributes": rest, "tensors": tensors or {}}


def zeros(*shape: int) -> dict[str, Any]:
    """A tensor that takes no bytes of the file but its scales."""
    how = {"values": "int8", "positions": "gaps", "kept": 0, "position_bytes": 0}
    return {"shape": shape, **how}


def linear(source: str, output: str, size: int) -> dict[str, Any]:
    return operation("linear", [source], output, {"weight": zeros(size, size)})


def pad(output: str) -> dict[str, Any]:
    return operation("pad", ["x"], output, channels=[0, 0], padding=[8000] * 4)


def pool(output: str, stride: int, *kernel: int) -> dict[str, Any]:
    options = {"kernel": kernel, "stride": [stride] * 2, "padding": [0] * 4, "dilation": [1, 1]}
    return operation("max_pool", ["x"], output, **options)


def conv(output: str, padding: list[int]) -> dict[str, Any]:
    options = {"stride": [1, 1], "padding": padding, "dilation": [1, 1], "groups": 1}
    how = {"values": "int8", "positions": "all", "kept": 1, "position_bytes": 0}
    weight = {"shape": [1, 1, 1, 1], **how}
    return operation("conv", ["x"], output, {"weight": weight}, **options)


BOMBS = {
    "tensors": content(
        [16384], linear("x", "a", 16384), linear("a", "b", 16384), payload=bytes(2 * 4 * 16384)
    ),
    "attention": content(
        [1, 2**20], operation("attention", ["x", "x", "x"], "y", heads=1, scale=1.0, causal=False)
    ),
    "sequences": content(
        [2**20],
        operation("embedding", ["x"], "y", {"table": zeros(1, 2**9)}),
    ),
    "table": content([1], operation("embedding", ["x"], "y", {"table": zeros(2**20, 2**8)})),
    "work": content([1, 16384, 1024], pool("a", 1, 2048, 512)),
    "activations": content([1, 16, 16], pad("a"), pad("b"), operation("add", ["a", "b"], "c")),
    "adaptive": content([1, 1, 1], operation("adaptive_avg_pool", ["x"], "a", size=[2**14, 2**14])),
    "one value": content([2**28], operation("activation", ["x"], "a", kind="tanh")),
    # Each alone is small; together the plane of `x` needs margins on both sides.
    "margins": content(
        [1, 1, 1],
        conv("a", [2**19, 0, 0, 0]),
        conv("b", [0, 2**19, 0, 0]),
        operation("slice", ["a"], "c", start=[0, 0, 0], stop=[1, 1, 1], step=[1, 1, 1]),
        operation("slice", ["b"], "d", start=[0, 0, 0], stop=[1, 1, 1], step=[1, 1, 1]),
        operation("add", ["c", "d"], "e"),
        payload=2 * (b"\x01" + np.float32(1).tobytes()),
    ),
}


def test_bytes_that_describe_gigabytes_or_minutes_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in BOMBS]
    for path, bomb in zip(paths, BOMBS.values(), strict=True):
        assert len(bomb) < 1300
        path.write_bytes(bomb)
    outcomes, memory, seconds = cost(*paths)
    assert dict(zip(BOMBS, outcomes, strict=True)) == dict.fromkeys(BOMBS, "refused")
    assert memory < 100 and seconds < 20


def chain(kind: str, count: int) -> list[dict[str, Any]]:
    """Operations of which each reads the one before it."""
    names = ["x", *(f"v{number}" for number in range(count))]
    return [
        operation("activation", [before], after, kind=kind) for before, after in pairwise(names)
    ]


def all_alive(count: int) -> list[dict[str, Any]]:
    """Values that are all read at the end."""
    made = [operation("activation", ["x"], f"v{number}", kind="tanh") for number in range(count)]
    return [*made, operation("concatenate", [one["output"] for one in made], "y")]


def test_planning_takes_linear_time(tmp_path: Path) -> None:
    graphs = {"chain": chain("tanh", 30_000), "alive": all_alive(5_000)}
    for name, operations in graphs.items():
        (tmp_path / name).write_bytes(content([4], *operations))
    outcomes, memory, seconds = cost(*(tmp_path / name for name in graphs))
    assert outcomes == ["ran", "ran"] and memory < 500 and seconds < 60


def test_whoever_trusts_a_file_can_raise_its_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = Builder((1, 4, 4))
    net.conv("x", 3)
    graph, path = net.graph(), tmp_path / "model.prunus"
    path.write_bytes(encode(graph))
    size = path.stat().st_size
    assert prunus_runtime.load(path, limits=Limits(memory=0, work=432)).graph.shapes == graph.shapes
    with pytest.raises(RuntimeFileError, match=r"4\.3e\+02 multiply-adds .* limit is 4\.3e\+02"):
        prunus_runtime.load(path, limits=Limits(work=431))
    with pytest.raises(RuntimeFileError, match=r"GiB of memory.*limits=Limits\(memory=\.\.\.\)"):
        prunus_runtime.load(path, limits=Limits(memory=-PLANNED * size))
    prunus_runtime.load(path, limits=None)

    path.write_bytes(BOMBS["one value"])
    assert main(["info", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: it takes 3.00 GiB") and error.count("\n") == 1
    assert main(["info", str(path), "--no-limits"]) == 0


def test_the_plan_is_within_the_limits_too() -> None:
    """What planning adds to the tensors is not known from the header alone."""
    net, x = Builder((1, 64, 64)), "x"
    for _ in range(20):
        x = net.conv(x, 1, density=1.0)
    network = prunus_runtime.Deployed(net.graph(), 1, limits=Limits(memory=150_000))
    with pytest.raises(prunus_runtime.GraphError, match="GiB of memory"):
        network(np.zeros((1, 1, 64, 64), np.float32))
    with pytest.raises(prunus_runtime.GraphError, match="GiB of memory"):
        prunus_runtime.Deployed(net.graph(), 1, limits=Limits(memory=10_000))


def test_errors_are_short(tmp_path: Path) -> None:
    path = tmp_path / "sent.prunus"
    path.write_bytes(content([1] * 1_000_000, operation("activation", ["x"], "y", kind="tanh")))
    with pytest.raises(RuntimeFileError, match="the input would have shape") as caught:
        prunus_runtime.load(path)
    assert len(str(caught.value)) < 500


def test_tensors_count_what_they_hold_and_what_planning_them_takes() -> None:
    net = Builder((10,))
    net.linear("x", 10, density=1.0, bias=False)
    body = encode(net.graph())
    needed = 4 * (100 + 10 + 2 * 10) + PLANNED * 100
    decode(body, Limits(memory=needed - PLANNED * len(body)))
    with pytest.raises(RuntimeFileError, match="of memory"):
        decode(body, Limits(memory=needed - PLANNED * len(body) - 1))


def test_numpy_alone_does_not_unfold_all_windows_at_once() -> None:
    net = Builder((1, 300, 300))
    net.conv("x", 1, kernel=(30, 30), padding=(0, 0, 0, 0))
    graph, x = net.graph(), np.ones((1, 1, 300, 300), np.float32)
    tracemalloc.start()
    try:
        y = reference.run(graph, x)
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20  # all are 252 MiB
    finally:
        tracemalloc.stop()
    weight, bias = (graph.operations[0].tensors[name] for name in ("weight", "bias"))
    np.testing.assert_allclose(y, np.full_like(y, weight.sum() + bias[0]), rtol=1e-3, atol=1e-4)
