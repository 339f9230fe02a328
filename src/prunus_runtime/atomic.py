"""Files: written so that a reader sees the old content or the new, and read only if regular."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from uuid import uuid4


def write_atomically(path: str | os.PathLike[str], *content: bytes | memoryview | str) -> Path:
    """Write `content`, part after part, by way of a temporary file; create missing folders.

    What is not a regular file, such as a pipe or `/dev/null`, is not replaced but written to. An
    `OSError` names `path` itself, not the temporary file.
    """
    try:
        return _write(Path(path), content)
    except OSError as error:
        if error.errno is not None:
            error.filename = os.fspath(path)
        raise


def _write(target: Path, content: tuple[bytes | memoryview | str, ...]) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    if _is_a_door(target):
        with target.open("ab") as file:
            file.writelines(_bytes(part) for part in content)
        return target
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.writelines(_bytes(part) for part in content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)
    return target


def read_file(path: str | os.PathLike[str], most: int = -1) -> bytes:
    """The content of a regular file, or its first `most` bytes.

    Anything else is an `OSError`: reading a pipe that nobody writes to would wait for ever.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        return file.read(most)


def _bytes(part: bytes | memoryview | str) -> bytes | memoryview:
    return part.encode() if isinstance(part, str) else part


def _is_a_door(target: Path) -> bool:
    """Whether it leads elsewhere: a device, a pipe, or a link such as `/dev/stdout`, whatever that
    points to at the moment. A folder does not: it is in the way."""
    if target.is_symlink() and target.is_relative_to("/dev"):
        return True
    return target.exists() and not (target.is_file() or target.is_dir())


def _sync_folder(folder: Path) -> None:
    """Let a rename in `folder` outlive a loss of power, where folders can be synchronised."""
    with suppress(OSError):  # Windows and some network drives cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
