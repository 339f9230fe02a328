"""Writing files so that a reader sees the old one or the new one, never half of one."""

import os
from pathlib import Path

import prunus_runtime.atomic


def write_atomically(path: str | os.PathLike[str], *content: bytes | memoryview | str) -> Path:
    """Write `content`, part after part, by way of a temporary file; create missing folders.

    An `OSError` names `path` itself, and not the temporary file.
    """
    try:
        return prunus_runtime.atomic.write_atomically(path, *content)
    except OSError as error:
        if error.errno is not None:
            error.filename = os.fspath(path)
        raise
