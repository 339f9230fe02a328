"""Files: written so that a reader sees the old one or the new one, and read if they are files."""

import os
from pathlib import Path

import prunus_runtime.atomic
from prunus_runtime.atomic import read_file as read_file


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


def read_text(path: str | os.PathLike[str], errors: str = "strict") -> str:
    """The text of a regular file; see `read_file`."""
    return read_file(path).decode(errors=errors)
