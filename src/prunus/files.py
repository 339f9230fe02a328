"""Writing files so that a reader sees the old one or the new one, never half of one."""

from __future__ import annotations

import os
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
    return target
