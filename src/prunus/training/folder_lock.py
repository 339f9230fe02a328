"""Only one process at a time works in a run's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prunus.errors import PrunusError

try:
    import fcntl
except ImportError:  # on Windows the user takes care
    fcntl = None  # type: ignore[assignment]


class BusyError(PrunusError, RuntimeError):
    """Another process is working on the same run."""


class FolderGoneError(PrunusError, RuntimeError):
    """The folder of a run or a sweep was moved or deleted while it was written to."""

    status = 1


class FolderLock:
    """Held until released or until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".lock"
        self._file: Any = None

    def acquire(self) -> None:
        if fcntl is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.seek(0)
            owner = self._file.read().strip()
            self._file.close()
            raise BusyError(
                f"process {owner} is at work in {self._path.parent}: wait for it, or "
                "stop it (Ctrl-C) and run the command again"
            ) from error
        try:
            self._file.truncate(0)
            self._file.write(str(os.getpid()))
            self._file.flush()
        except OSError as error:
            error.filename = str(self._path)
            raise

    def check(self) -> None:
        """Raise if the folder is no longer there: what we write would land in a new one."""
        if self._file is None:
            return
        try:
            same = os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except (FileNotFoundError, NotADirectoryError):
            same = False
        if not same:
            raise FolderGoneError(
                f"{self._path.parent} was moved or deleted while it was written to. What was "
                "written before is whole: move it back, and the same command resumes"
            )

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
