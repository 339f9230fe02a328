"""Writing files so that a reader sees the old one or the new one, never half of one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4


def write_atomically(path: str | os.PathLike[str], *content: bytes | memoryview | str) -> Path:
    """Write `content`, part after part, by way of a temporary file; create missing folders."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            for part in content:
                file.write(part.encode() if isinstance(part, str) else part)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)
    return target


def _sync_folder(folder: Path) -> None:
    """Let a rename in `folder` outlive a loss of power, where folders can be synchronised."""
    with suppress(OSError):  # Windows and some network drives cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
