"""`metrics.jsonl`: one line of data after each epoch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from warnings import warn

from prunus.errors import PrunusWarning


class MetricsFile:
    """Appends lines to a file; a checkpoint stores how long it was.

    Lines hold what the run computed, never a time, so that equal runs write equal files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(dict(line)) + "\n")

    def position(self) -> int:
        """The length of the file, once all of it is safely on disk."""
        if not self.path.exists():
            return 0
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)

    def cut(self, position: int) -> None:
        """Remove what was added after `position`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            length = file.tell()
            if length < position:
                warn(
                    f"{self.path} has {length} bytes, but {position} when the checkpoint was "
                    "written: lines are missing",
                    PrunusWarning,
                    stacklevel=2,
                )
            file.truncate(min(length, position))
