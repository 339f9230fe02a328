"""Small ticket files that would unpack to something huge: refused, or cheap."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from prunus import Mask, Ticket, TicketError
from prunus.tickets import file as ticket_file
from support.processes import run

Command = Callable[..., tuple[int, str, str]]
MEGABYTE = 2**20
EMPTY = ["t", "bool", [0], True]
LOAD = """
import sys, time
import prunus
from support.memory import peak
before, start = peak(), time.process_time()
for path in sys.argv[1:]:
    try:
        prunus.Ticket.load(path)
        outcome = "loaded"
    except prunus.TicketError as error:
        outcome = "refused"
    print(outcome)
print(peak() - before, time.process_time() - start)
"""


def cost(*paths: Path) -> tuple[list[str], float, float]:
    """What loading each file ends with; the memory (MB) and processor time (s) of all together."""
    *outcomes, memory, seconds = run("-c", LOAD, *paths).split()
    return outcomes, float(memory), float(seconds)


def write(path: Path, manifest: bytes, masks: bytes = b"", **values: Tensor) -> Path:
    """A ticket file with a valid hash over anything."""

    def as_tensor(data: bytes) -> Tensor:
        return torch.from_numpy(np.frombuffer(bytearray(data), np.uint8).copy())

    tensors = {"manifest": as_tensor(zlib.compress(manifest, 9)), "masks": as_tensor(masks)}
    tensors |= {f"values.{dtype}": tensor for dtype, tensor in values.items()}
    metadata = {"format": "prunus.ticket", "version": "1", "sha256": ticket_file._hash(tensors)}
    path.write_bytes(safetensors.torch.save(tensors, metadata))
    return path


def manifest(tensors: list[Any], **more: Any) -> bytes:
    content = {"whole": False, "tensors": tensors, **more}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


BOMBS = {
    "lists": b'{"whole":false,"tensors":[],"settings":{"a":[' + b"[]," * 5_000_000 + b"0]}}",
    "tensors": b'{"whole":false,"tensors":[' + b'["a","bool",[0],true],' * 400_000 + b"0]}",
    "depth": b'{"whole":false,"tensors":[],"settings":' + b'{"a":' * 200_000 + b"}" * 200_000,
    "text": b'{"whole":false,"tensors":[],"task":"' + b"x" * (60 * MEGABYTE) + b'"}',
}


def test_kilobytes_that_unpack_to_gigabytes_are_refused(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, bomb) for name, bomb in BOMBS.items()]
    # A larger file may have more text, but not so many more values.
    more = {"float32": torch.zeros(MEGABYTE // 4)}
    paths += [write(tmp_path / f"more {name}", bomb, **more) for name, bomb in BOMBS.items()]
    outcomes, memory, seconds = cost(*paths)
    assert outcomes == ["refused"] * len(paths) and memory < 100 and seconds < 10


def test_as_many_tensors_as_fit_are_cheap(tmp_path: Path) -> None:
    tensors = [[f"t{number}", "bool", [0], True] for number in range(19_000)]
    path = write(tmp_path / "many", manifest(tensors), bool=torch.zeros(0, dtype=torch.bool))
    outcomes, memory, seconds = cost(path)
    assert outcomes == ["loaded"] and memory < 150 and seconds < 20
    many = [[f"t{number}", "bool", [0], True] for number in range(25_000)]
    more = write(tmp_path / "more", manifest(many), bool=torch.zeros(0, dtype=torch.bool))
    with pytest.raises(TicketError, match="the index has 25000 tensors"):
        Ticket.load(more)


def test_mask_bits_cost_a_small_multiple_of_the_weights_they_stand_for(tmp_path: Path) -> None:
    weights = 8 * 4 * MEGABYTE
    index = manifest([["w", "float32", [weights], True]])
    path = write(tmp_path / "bits", index, bytes(weights // 8), float32=torch.zeros(0))
    outcomes, memory, seconds = cost(path)
    # The weights themselves take 4 bytes each and the mask one: 160 MB.
    assert outcomes == ["loaded"] and memory < 320 and seconds < 10


def test_a_header_of_megabytes_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "header"
    tensors = {f"{'x' * 90}{number}": torch.zeros(0) for number in range(2_000)}
    path.write_bytes(safetensors.torch.save(tensors))
    with pytest.raises(TicketError, match="the header has"):
        Ticket.load(path)


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    many = {f"layer{number}.weight": torch.zeros(1) for number in range(30_000)}
    with pytest.raises(TicketError, match="30000 tensors"):
        Ticket(Mask({}), many).save(tmp_path / "many")
    assert not list(tmp_path.iterdir())
    large = {f"layer{number}.weight": torch.zeros(1_000) for number in range(30_000)}
    assert len(Ticket.load(Ticket(Mask({}), large).save(tmp_path / "large")).weights) == 30_000


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TicketError, match="it is not a regular file"):
        Ticket.load(tmp_path / "pipe")


def test_a_manifest_goes_ten_deep(tmp_path: Path) -> None:
    def settings(depth: int) -> bytes:
        inner = b'{"a":' * depth + b"1" + b"}" * depth
        return b'{"whole":false,"tensors":[],"settings":' + inner + b"}"

    assert Ticket.load(write(tmp_path / "fine", settings(8))).manifest.settings
    for depth in (10, 900):  # what can be read, but not shown
        with pytest.raises(TicketError, match="nested more than 10 deep"):
            Ticket.load(write(tmp_path / "deep", settings(depth)))


def test_text_that_is_not_unicode(tmp_path: Path) -> None:
    path = write(tmp_path / "text", b'{"whole":false,"tensors":[],"task":"\\ud800"}')
    with pytest.raises(TicketError, match="not Unicode"):
        Ticket.load(path)


def largest(path: Path, make: Callable[[int], bytes]) -> int:
    """Write the largest of these manifests that a ticket may have; how large it is."""
    size = 1 << 16
    while size:
        try:
            Ticket.load(write(path, make(size), bool=torch.zeros(0, dtype=torch.bool)))
            return size
        except TicketError:
            size = size * 9 // 10
    raise AssertionError("none can be read")


@pytest.mark.parametrize(
    "make",
    [
        lambda size: manifest([EMPTY], settings={"a": {"b": {"c": [[[[[[]] * size]]]]}}}),
        lambda size: manifest([EMPTY], settings={"a": list(range(10)) * size}),
        lambda size: manifest([EMPTY], task="\U0001f351" * size),
        lambda size: manifest([[f"t{n}", "bool", [0], True] for n in range(size)]),
    ],
    ids=["lists", "numbers", "text", "layers"],
)
def test_as_json_a_ticket_is_a_small_multiple_of_its_file(
    cli: Command, make: Callable[[int], bytes]
) -> None:
    assert largest(Path("ticket"), make)
    status, output, errors = cli("inspect", "ticket", "--json")
    assert status == 0 and json.loads(output), errors
    assert len(output) < 128 * Path("ticket").stat().st_size
