"""Damaged and hostile ticket files: always a `TicketError` that says what is wrong."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import prunus
from prunus import Manifest, Mask, Ticket, TicketError

torch.set_num_threads(1)

TICKET = Ticket(
    Mask({"conv.weight": torch.arange(12).view(3, 4) % 3 == 0, "fc.weight": torch.ones(5) > 0}),
    {
        "conv.weight": torch.linspace(-1, 1, 12).view(3, 4),
        "fc.weight": torch.linspace(1, 2, 5),
        "fc.bias": torch.tensor([0.5, -0.5]).double(),
        "steps": torch.tensor(7),
    },
    Manifest(task="a/b", method="cs", settings={"x": 1}, seed=0, metrics={"accuracy": 0.5}),
)

FUZZ = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "ticket"


@pytest.fixture(scope="module")
def data(path: Path) -> bytes:
    content = TICKET.save(path).read_bytes()
    assert Ticket.load(path) == TICKET
    return content


def assert_refused(path: Path, content: bytes, message: str | None = None) -> str:
    path.write_bytes(content)
    with pytest.raises(TicketError, match=message) as raised:
        Ticket.load(path)
    text = str(raised.value)
    assert text.startswith(f"{path}: ")
    assert len(text) > len(f"{path}: ") + 10, "the error says nothing"
    return text


class TestDamage:
    def test_a_flipped_bit_in_every_byte(self, path: Path, data: bytes) -> None:
        for position in range(len(data)):
            bit = 1 << (position % 8)
            flipped = data[position] ^ bit
            assert_refused(path, data[:position] + bytes([flipped]) + data[position + 1 :])

    def test_every_truncation(self, path: Path, data: bytes) -> None:
        for length in range(len(data)):
            assert_refused(path, data[:length])

    def test_whitespace_in_the_header(self, path: Path, data: bytes) -> None:
        end = 8 + int.from_bytes(data[:8], "little")
        padding = range(len(data[:end].rstrip(b" ")), end)
        for position in padding:
            for space in b"\t\n\r":
                assert_refused(path, data[:position] + bytes([space]) + data[position + 1 :])
        assert Ticket.load(TICKET.save(path)) == TICKET

    @FUZZ
    @given(st.data())
    def test_replaced_bytes(self, path: Path, data: bytes, draw: st.DataObject) -> None:
        position = draw.draw(st.integers(0, len(data) - 1))
        new = draw.draw(st.binary(min_size=1, max_size=8))
        mutated = data[:position] + new + data[position + len(new) :]
        if mutated != data:
            assert_refused(path, mutated)

    @FUZZ
    @given(st.data())
    def test_inserted_bytes(self, path: Path, data: bytes, draw: st.DataObject) -> None:
        position = draw.draw(st.integers(0, len(data)))  # at the end: appended garbage
        new = draw.draw(st.binary(min_size=1, max_size=40) | st.sampled_from([b" ", b"\0", b"}"]))
        assert_refused(path, data[:position] + new + data[position:])

    @FUZZ
    @given(st.data())
    def test_deleted_bytes(self, path: Path, data: bytes, draw: st.DataObject) -> None:
        start = draw.draw(st.integers(0, len(data) - 1))
        length = draw.draw(st.integers(1, 40))
        assert_refused(path, data[:start] + data[start + length :])

    @FUZZ
    @given(st.data())
    def test_swapped_blocks(self, path: Path, data: bytes, draw: st.DataObject) -> None:
        a, b, c, d = sorted(draw.draw(st.integers(0, len(data))) for _ in range(4))
        mutated = data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]
        if mutated != data:
            assert_refused(path, mutated)

    @settings(max_examples=200)
    @given(st.binary(max_size=200))
    def test_any_bytes(self, path: Path, content: bytes) -> None:
        assert_refused(path, content)

    def test_doubled(self, path: Path, data: bytes) -> None:
        assert_refused(path, data + data)


# Hostile files: everything in them is consistent, even the hash, but the content is not a ticket.


def sha256(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def as_tensor(content: bytes) -> Tensor:
    return torch.tensor(list(content), dtype=torch.uint8)


def deflated(value: Any) -> Tensor:
    return as_tensor(zlib.compress(json.dumps(value).encode()))


def manifest(**changes: Any) -> dict[str, Any]:
    """The manifest of a valid small ticket, with changes."""
    valid = {
        "task": "t",
        "settings": {},
        "whole": False,
        "tensors": [["w", "float32", [3, 4], True], ["b", "float32", [2], False]],
    }
    return valid | changes


def entries(*index: Any) -> Tensor:
    return deflated(manifest(tensors=list(index)))


def tensors(**changes: Tensor | None) -> dict[str, Tensor]:
    """The tensors of a valid small ticket, 5 of 12 weights kept, with changes (None: left out)."""
    valid: dict[str, Tensor | None] = {
        "manifest": deflated(manifest()),
        "masks": torch.tensor([0b10010010, 0b01010000], dtype=torch.uint8),
        "values.float32": torch.arange(7.0),
    }
    renamed = {name.replace("values_", "values."): tensor for name, tensor in changes.items()}
    return {name: t for name, t in (valid | renamed).items() if t is not None}


def hostile(content: dict[str, Tensor], **metadata: str) -> bytes:
    known = {"format": "prunus.ticket", "version": "1", "sha256": sha256(content)}
    return safetensors.torch.save(content, known | metadata)


def with_header(change: Callable[[dict[str, Any]], object]) -> bytes:
    valid = hostile(tensors())
    end = 8 + int.from_bytes(valid[:8], "little")
    header = json.loads(valid[8:end])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + valid[end:]


W, B = ["w", "float32", [3, 4], True], ["b", "float32", [2], False]

HOSTILE_CONTENT: dict[str, tuple[dict[str, Tensor], str]] = {
    # Shapes
    "huge shape": (tensors(manifest=entries(["w", "float32", [2**40, 2**40], True], B)), "bits"),
    "huge unmasked": (tensors(manifest=entries(W, ["b", "float32", [2**62], False])), "missing"),
    "overflowing": (
        tensors(manifest=entries(W, B, ["c", "float32", [2**62, 2**62, 0], False])),
        "make sense",
    ),
    "beyond 64 bits": (tensors(manifest=entries(W, ["b", "float32", [2**80], False])), "missing"),
    "negative shape": (tensors(manifest=entries(W, ["b", "float32", [-2], False])), "shape"),
    "negative product": (tensors(manifest=entries(["w", "float32", [-3, -4], True], B)), "shape"),
    "shape of floats": (tensors(manifest=entries(W, ["b", "float32", [2.0], False])), "shape"),
    "shape of bools": (tensors(manifest=entries(W, B, ["c", "float32", [False], False])), "shape"),
    "shape no list": (tensors(manifest=entries(W, ["b", "float32", 2, False])), "no tensor"),
    "shape a string": (tensors(manifest=entries(W, ["b", "float32", "2", False])), "no tensor"),
    "too many axes": (
        tensors(manifest=entries(["w", "float32", [1] * 100 + [3, 4], True], B)),
        "shape",
    ),
    # Names and types
    "duplicate name": (tensors(manifest=entries(W, B, B)), "'b' is in the index twice"),
    "name no string": (tensors(manifest=entries(W, [5, "float32", [2], False])), "no tensor"),
    "unknown type": (tensors(manifest=entries(W, ["b", "object", [2], False])), "'object'"),
    "type no string": (tensors(manifest=entries(W, ["b", ["float32"], [2], False])), "no tensor"),
    "masked no bool": (tensors(manifest=entries(W, ["b", "float32", [2], "no"])), "no tensor"),
    "short entry": (tensors(manifest=entries(W, ["b", "float32"])), "no tensor"),
    "entry no list": (tensors(manifest=entries(W, "b")), "no tensor"),
    "other type stated": (
        tensors(manifest=entries(W, ["b", "float64", [2], False])),
        "values of b are missing",
    ),
    "other type stored": (tensors(values_float32=torch.arange(7)), "values of w are missing"),
    # Counts
    "too few values": (tensors(values_float32=torch.arange(6.0)), "values of b are missing"),
    "too many values": (tensors(values_float32=torch.arange(8.0)), "does not name"),
    "mask keeps more": (
        tensors(masks=torch.tensor([0xFF, 0xF0], dtype=torch.uint8)),
        "values of w are missing",
    ),
    "mask keeps fewer": (
        tensors(masks=torch.tensor([0, 0], dtype=torch.uint8)),
        "does not name",
    ),
    "bits beyond the end": (
        tensors(masks=torch.tensor([0b10010010, 0b01010001], dtype=torch.uint8)),
        "bits beyond their end",
    ),
    "masks too short": (tensors(masks=torch.tensor([1], dtype=torch.uint8)), "1 bytes, not the 12"),
    "masks too long": (tensors(masks=torch.zeros(9, dtype=torch.uint8)), "9 bytes, not the 12"),
    "masks no bytes": (tensors(masks=torch.zeros(2)), "'masks' is missing or of the wrong type"),
    "masks of two axes": (tensors(masks=torch.zeros(1, 2, dtype=torch.uint8)), "'masks'"),
    "no masks": (tensors(masks=None), "'masks' is missing"),
    "no values": (tensors(values_float32=None), "values of w are missing"),
    "an extra tensor": (tensors(extra=torch.zeros(3)), "does not name"),
    "extra values": (tensors(values_int8=torch.zeros(3, dtype=torch.int8)), "does not name"),
    "values not finite": (tensors(values_float32=torch.full((7,), float("nan"))), "w holds NaN"),
    "values of two axes": (tensors(values_float32=torch.zeros(7, 1)), "values of w are missing"),
    "nothing": ({}, "'manifest' is missing"),
    # The manifest
    "no manifest": (tensors(manifest=None), "'manifest' is missing"),
    "manifest of floats": (tensors(manifest=torch.zeros(4)), "'manifest' is missing or of the"),
    "manifest not deflated": (tensors(manifest=as_tensor(b"{}")), "make sense"),
    "manifest cut short": (tensors(manifest=deflated(manifest())[:-9]), "incomplete"),
    "manifest and more": (
        tensors(manifest=torch.cat([deflated(manifest()), as_tensor(b"more")])),
        "something else",
    ),
    "manifest empty": (tensors(manifest=as_tensor(b"")), "incomplete"),
    "no JSON": (tensors(manifest=as_tensor(zlib.compress(b"{'a'"))), "make sense"),
    "not UTF-8": (tensors(manifest=as_tensor(zlib.compress(b"\xff\xfe{"))), "make sense"),
    "a list": (tensors(manifest=deflated([1, 2])), "not a JSON object"),
    "a number": (tensors(manifest=deflated(7)), "not a JSON object"),
    "null": (tensors(manifest=deflated(None)), "not a JSON object"),
    "deep JSON": (tensors(manifest=as_tensor(zlib.compress(b"[" * 10**3))), "make sense"),
    "deeper JSON": (tensors(manifest=as_tensor(zlib.compress(b"[" * 10**4))), "values of such"),
    "huge number": (
        tensors(manifest=as_tensor(zlib.compress(b'{"seed":' + b"9" * 5000 + b"}"))),
        "make sense",
    ),
    "no index": (tensors(manifest=deflated({"whole": False})), "no index"),
    "index no list": (tensors(manifest=deflated(manifest(tensors={"w": 1}))), "no index"),
    "whole missing": (tensors(manifest=deflated({"tensors": []})), "whole"),
    "whole no bool": (tensors(manifest=deflated(manifest(whole="no"))), "whole"),
    "unknown field": (tensors(manifest=deflated(manifest(evil=1))), "'evil' is unknown"),
    "task no string": (tensors(manifest=deflated(manifest(task=5))), "'task' has the wrong type"),
    "seed a string": (tensors(manifest=deflated(manifest(seed="5"))), "'seed' has the wrong type"),
    "settings a list": (tensors(manifest=deflated(manifest(settings=[]))), "'settings' has the"),
    "metrics null": (tensors(manifest=deflated(manifest(metrics=None))), "'metrics' has the wrong"),
    "metrics NaN": (
        tensors(manifest=deflated(manifest(metrics={"a": float("nan")}))),
        "'metrics' is not plain JSON",
    ),
    "whole, but values dropped": (tensors(manifest=deflated(manifest(whole=True))), "missing"),
}  # fmt: skip


class TestHostile:
    def test_the_builder_makes_valid_files(self, path: Path) -> None:
        path.write_bytes(hostile(tensors()))
        ticket = Ticket.load(path)
        assert ticket.mask.kept == 5
        assert ticket.weights["w"].flatten().tolist() == [0, 0, 0, 1, 0, 0, 2, 0, 0, 3, 0, 4]
        assert ticket.weights["b"].tolist() == [5, 6]

    @pytest.mark.parametrize("name", HOSTILE_CONTENT)
    def test_content(self, path: Path, name: str) -> None:
        content, message = HOSTILE_CONTENT[name]
        assert_refused(path, hostile(content), re.escape(message))

    def test_a_bomb(self, path: Path) -> None:
        squeeze = zlib.compressobj(9)
        bomb = b"".join(squeeze.compress(bytes(2**20)) for _ in range(100)) + squeeze.flush()
        assert_refused(path, hostile(tensors(manifest=as_tensor(bomb))), "too large")

    def test_settings_as_deep_as_can_be_read(self, path: Path) -> None:
        for depth in (8, 100, 300, 900):
            nested: Any = {}
            for _ in range(depth):
                nested = {"a": nested}
            path.write_bytes(hostile(tensors(manifest=deflated(manifest(settings=nested)))))
            try:
                ticket = Ticket.load(path)
            except TicketError as error:
                assert depth > 8, error
            else:
                assert Ticket.load(ticket.save(path)) == ticket

    @pytest.mark.parametrize(
        ("metadata", "message"),
        [
            ({"version": "2"}, r"ticket format 2; this Prunus reads up to 1: upgrade"),
            ({"version": "999999999"}, "upgrade"),
            ({"version": "0"}, "version '0' is not a number from 1 up"),
            ({"version": "-1"}, "version '-1' is not"),
            ({"version": "1.0"}, "version '1.0' is not"),
            ({"version": ""}, "version '' is not"),
            ({"version": "²"}, "version '²' is not"),
            ({"version": "9" * 5000}, "version '9{20}' is not"),
            ({"format": "other"}, "not a Prunus ticket"),
            ({"sha256": ""}, "hash does not match"),
            ({"sha256": "0" * 64}, "hash does not match"),
        ],
    )
    def test_metadata(self, path: Path, metadata: dict[str, str], message: str) -> None:
        assert len(assert_refused(path, hostile(tensors(), **metadata), message)) < 500

    @pytest.mark.parametrize(
        "change",
        [
            lambda header: header.pop("__metadata__"),
            lambda header: header.update(__metadata__=None),
            lambda header: header.update(__metadata__={}),
            lambda header: header.update(__metadata__=[]),
            lambda header: header["__metadata__"].update(version=1),
            lambda header: header["__metadata__"].pop("sha256"),
            lambda header: header["__metadata__"].pop("version"),
            lambda header: header["masks"].update(shape=[2**63, 2]),
            lambda header: header["masks"].update(shape=[-2]),
            lambda header: header["masks"].update(dtype="F8_E4M3"),
            lambda header: header["masks"].update(dtype="NOPE"),
            lambda header: header["masks"].update(data_offsets=[0, 10**9]),
        ],
    )
    def test_header(self, path: Path, change: Callable[[dict[str, Any]], object]) -> None:
        assert_refused(path, with_header(change))

    def test_a_model_of_someone_else(self, path: Path) -> None:
        content = safetensors.torch.save({"w": torch.zeros(2)}, {"format": "pt"})
        assert_refused(path, content, "not a Prunus ticket")

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
    @pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 2)])
    def test_odd_tensors(self, path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        content = {"manifest": torch.zeros(shape, dtype=dtype)}
        metadata = {"format": "prunus.ticket", "version": "1"}
        assert_refused(path, safetensors.torch.save(content, metadata))

    @settings(max_examples=120)
    @given(st.data())
    def test_any_json_as_manifest(self, path: Path, draw: st.DataObject) -> None:
        leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
        value = st.recursive(
            leaves, lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=6
        )
        field = draw.draw(
            st.sampled_from(["task", "settings", "whole", "tensors", "seed", "versions"])
        )
        content = tensors(manifest=deflated(manifest(**{field: draw.draw(value)})))
        path.write_bytes(hostile(content))
        try:
            ticket = Ticket.load(path)
        except TicketError:
            return
        assert Ticket.load(ticket.save(path)) == ticket, "what loads can be saved again"


UNSAFE_MODULES = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNSAFE_CALLS = {"torch.load", "torch.save", "pickle.load", "pickle.loads", "eval", "exec"}
# CIFAR's official files are pickles. Its reader may use an `Unpickler` that refuses every class.
PICKLED_DATA = {"tasks/data/cifar.py"}
# Checkpoints are read with `weights_only`, which also refuses every class.
CHECKPOINTS = {"training/checkpoint.py": {"torch.load", "torch.save"}}
# A sweep and its workers talk through pipes that nobody else can write to.
OWN_WORKERS = {"sweeps/executors/local.py": set(), "sweeps/executors/worker.py": {"pickle.loads"}}

PACKAGE = Path(prunus.__file__).parent
SOURCES = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")]


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_no_pickle_in_the_package(source: str) -> None:
    imported: set[str] = set()
    called: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / source).read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Call):
            called.add(ast.unparse(node.func))
    allowed = {"pickle"} if source in PICKLED_DATA | OWN_WORKERS.keys() else set()
    assert imported & UNSAFE_MODULES <= allowed
    assert called & UNSAFE_CALLS == (CHECKPOINTS | OWN_WORKERS).get(source, set())


@pytest.mark.parametrize("source", CHECKPOINTS)
def test_checkpoints_load_tensors_and_plain_data_only(source: str) -> None:
    tree = ast.parse((PACKAGE / source).read_text())
    loads = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
    ]
    assert loads and all("weights_only=True" in load for load in loads)
