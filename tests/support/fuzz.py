"""Mutates tickets and deployed files, for as long as one likes: `make fuzz SECONDS=3600`.

Whatever a file holds, reading it gives its content or the one error that says what is wrong, soon
and within bounds of memory. A file that does something else is kept in `tests/security/corpus`. Its
files are where the mutations begin, and `tests/security/test_fuzz.py` reads them each time.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import resource
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from prunus import Ticket, TicketError
from prunus.tickets.file import FORMAT, HEADER_LIMIT, VERSION, _hash
from prunus_runtime import RuntimeFileError
from prunus_runtime import file as deployed

CORPUS = Path(__file__).parents[1] / "security" / "corpus"
SECONDS = 10.0
"""That one file may cost, on a slow machine."""
MEGABYTES = 400
"""That all files together may add to the memory of the process."""
NASTY = (b"", b"0", b"-1", b"1e999", b"null", b"true", b'"x"', b"[]", b"{}", b"9" * 30, b"[" * 2000)
Random = random.Random


def mutated(data: bytes, other: bytes, draw: Random) -> bytes:
    """`data` with one to three changes: of bits, by cutting, repeating, or parts of `other`."""
    for _ in range(draw.randint(1, 3)):
        at, length = draw.randint(0, len(data)), draw.choice((1, 1, 2, 4, 8, 40))
        start = draw.randint(0, len(other))
        part = draw.choice(
            (
                bytes(draw.randrange(256) for _ in range(length)),
                other[start : start + length],
                data[at : at + length] * draw.choice((2, 50)),
                draw.choice(NASTY),
            )
        )
        data = data[:at] + part + data[at + draw.choice((0, length, len(part))) :]
    return data if draw.random() < 0.8 else data[: draw.randint(0, len(data))]


def mutated_ticket(data: bytes, other: bytes, draw: Random) -> bytes:
    """Of the bytes as they are; or of the manifest inside, under a hash that fits it."""
    try:
        size = int.from_bytes(data[:8], "little")
        if draw.random() < 0.3 or size > HEADER_LIMIT:
            return mutated(data, other, draw)
        tensors = safetensors.torch.load(data)
        text = zlib.decompress(tensors["manifest"].numpy().tobytes())
        packed = zlib.compress(mutated(text, text, draw))
        tensors["manifest"] = torch.from_numpy(np.frombuffer(packed, np.uint8).copy())
    except Exception:  # a file that was kept because it is strange
        return mutated(data, other, draw)
    metadata = {"format": FORMAT, "version": str(VERSION), "sha256": _hash(tensors)}
    return safetensors.torch.save(tensors, metadata)


def mutated_deployed(data: bytes, other: bytes, draw: Random) -> bytes:
    """Of the bytes as they are; or of what is packed inside, under a hash that fits it."""
    start = deployed.PREFIX.size
    try:
        if draw.random() < 0.3:
            return mutated(data, other, draw)
        body = gzip.decompress(data[start:])
        size = int.from_bytes(body[:4], "little")
        header = mutated(body[4 : 4 + size], body[4 : 4 + size], draw)
        if draw.random() < 0.5:
            json.loads(header)  # most others end there
    except Exception:
        return mutated(data, other, draw)
    body = gzip.compress(len(header).to_bytes(4, "little") + header + body[4 + size :], 1)
    digest = hashlib.sha256(body).digest()
    return deployed.PREFIX.pack(deployed.MAGIC, deployed.VERSION, digest) + body


def read_ticket(path: Path) -> None:
    try:
        Ticket.load(path)
    except TicketError as error:
        assert str(error).startswith(f"{path}: ")


def read_deployed(path: Path) -> None:
    try:
        deployed.decode(path.read_bytes())
    except RuntimeFileError as error:
        assert len(str(error)) > 10


KINDS: dict[str, tuple[Callable[[bytes, bytes, Random], bytes], Callable[[Path], None]]] = {
    ".safetensors": (mutated_ticket, read_ticket),
    ".prunus": (mutated_deployed, read_deployed),
}


def peak() -> int:
    """Megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def problem(path: Path, memory: int) -> str | None:
    """What is wrong with how a file is read; `memory` is what the process may take at most."""
    began = time.process_time()
    try:
        KINDS[path.suffix][1](path)
    except Exception as error:
        return f"{type(error).__name__}: {error!s:.200}"
    if (seconds := time.process_time() - began) > SECONDS:
        return f"it took {seconds:.0f} s"
    if peak() > memory:
        return f"it took the process to {peak()} MB"
    return None


def fuzz(seconds: float, most: int, seed: int, keep: Path = CORPUS) -> tuple[int, list[str]]:
    """How many files were read, and what was found: one line for each file that was kept."""
    draw, found, number = Random(seed), list[str](), 0
    files = {kind: sorted(CORPUS.glob(f"*{kind}")) for kind in KINDS}
    memory, until = peak() + MEGABYTES, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while number < most and time.monotonic() < until and len(found) < 10:
            kind = draw.choice(list(KINDS))
            one, other = (draw.choice(files[kind]).read_bytes() for _ in range(2))
            path = Path(folder) / f"mutated{kind}"
            path.write_bytes(KINDS[kind][0](one, other, draw))
            number += 1
            if wrong := problem(path, memory):
                name = f"found-{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}{kind}"
                (keep / name).write_bytes(path.read_bytes())
                found.append(f"{keep / name}: {wrong}")
                memory = peak() + MEGABYTES
    return number, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    options = parser.parse_args()
    torch.set_num_threads(1)
    number, found = fuzz(options.seconds, sys.maxsize, options.seed)
    print(f"{number:,} files with the seed {options.seed}, {len(found)} problems", *found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
