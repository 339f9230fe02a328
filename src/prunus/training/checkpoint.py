"""Checkpoints: the last two moments that a run can be resumed from."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from warnings import warn

import torch

from prunus.errors import PrunusError, PrunusWarning
from prunus.files import read_file, write_atomically

_MAGIC = b"prunus checkpoint 2\n"
_DIGEST = hashlib.sha256().digest_size
_KEPT = 2


class CheckpointError(PrunusError, RuntimeError):
    """A checkpoint that cannot be read."""


class Checkpoints:
    """The checkpoints of one run in one folder, named after where in the run they were taken."""

    def __init__(self, folder: Path, run: str = "") -> None:
        self.folder, self._run = folder, run

    def save(self, content: Mapping[str, Any], stage: int, step: int) -> Path:
        """Write `content` (tensors and plain data), and delete all but the last two."""
        path = self.folder / f"{stage:03d}-{step:09d}.pt"
        write_atomically(path, *encode({**content, "run": self._run}))
        for old in self.newest_first()[_KEPT:]:
            old.unlink()
        return path

    def latest(self, needs: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any] | None:
        """The newest that is whole, of this run, and has all that it `needs`: types by name.

        Others are reported and set aside under another name: if they still counted, the next ones
        to be written could look old beside them, and be deleted.
        """
        if self.folder.is_dir():
            for leftover in self.folder.glob(".*.pt.*"):  # of a write that was killed
                leftover.unlink()
        for path in self.newest_first():
            try:
                return self._read(path, needs)
            except (CheckpointError, OSError) as error:
                aside = path.rename(path.with_name(f"{path.name}.unusable"))
                before = "using the one before it" if self.newest_first() else "starting again"
                warn(f"{path}: {error}. Kept as {aside.name}; {before}", PrunusWarning, 2)
        return None

    def _read(self, path: Path, needs: Mapping[str, Any]) -> dict[str, Any]:
        content = decode(read_file(path))
        run = content.pop("run", self._run)  # older ones do not say
        if run != self._run:
            raise CheckpointError(f"this is a checkpoint of another run, {run!r:.80}")
        if lacking := [name for name in needs if name not in content]:
            raise CheckpointError(f"the checkpoint lacks {', '.join(lacking)}")
        for name, kind in needs.items():
            value = content[name]
            if not isinstance(value, kind) or (isinstance(value, int) and value < 0):
                raise CheckpointError(f"the checkpoint holds {name}={value!r:.60}")
        return content

    def newest_first(self) -> list[Path]:
        """The files, damaged or not."""
        return sorted(self.folder.glob("*.pt"), reverse=True)


def encode(content: Mapping[str, Any]) -> tuple[bytes, memoryview]:
    """The two parts of a file: what it is with a checksum, and the content (not copied again)."""
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    data = buffer.getbuffer()
    return _MAGIC + hashlib.sha256(data).digest(), data


def decode(data: bytes) -> dict[str, Any]:
    """The content of a file; anything wrong with it is a `CheckpointError`."""
    start = len(_MAGIC) + _DIGEST
    if not data.startswith(_MAGIC):
        raise CheckpointError("this is not a checkpoint, or one of another version of Prunus")
    saved = memoryview(data)[start:]
    if hashlib.sha256(saved).digest() != data[len(_MAGIC) : start]:
        raise CheckpointError("the checkpoint is damaged (its checksum does not match)")
    try:
        content = torch.load(io.BytesIO(saved), map_location="cpu", weights_only=True)
    except Exception as error:  # content made to break us, with a checksum that fits it
        raise CheckpointError("the checkpoint holds something else than tensors") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"the checkpoint holds a {type(content).__name__}")
    return content
