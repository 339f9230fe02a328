"""`sweep.json`: what the runs of a sweep are, and how far each is."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from prunus.errors import PrunusError, SettingError
from prunus.search.execution import read_results
from prunus.search.settings import RunSettings
from prunus.search.sweep.planned import Planned
from prunus_runtime.atomic import write_atomically

Status = Literal["pending", "running", "finished", "failed"]
VERSION = 1
_SHARE = 0.05
"""Of the time, at most, goes into writing the file."""


@dataclass
class Progress:
    """A planned run, and how far it is."""

    planned: Planned
    status: Status = "pending"
    error: str | None = None
    settings: RunSettings | None = None

    @property
    def folder(self) -> Path | None:
        """None while it depends on what another run finds."""
        return self.settings.folder if self.settings else None

    def as_data(self, below: Path) -> dict[str, Any]:
        planned = self.planned
        return {
            "id": planned.id,
            "command": planned.command,
            "task": planned.task,
            "method": planned.method,
            "row": planned.row,
            "parameters": dict(planned.parameters),
            "seed": planned.seed,
            "folder": self.folder.relative_to(below).as_posix() if self.folder else None,
            "status": self.status,
            "error": self.error,
            "needs": planned.needs,
            "stage": planned.stage,
        }


def is_finished(folder: Path) -> bool:
    """Whether the run in a folder has all its results."""
    try:
        results = read_results(folder)
    except ValueError:  # damaged: whoever runs it says so
        return False
    return bool(results and results["finished"])


def survey(plan: Sequence[Planned], failures: Mapping[str, str]) -> list[Progress]:
    """How far each run is, without doing any; `failures` are those of `SweepFile`."""
    found: dict[str, Progress] = {}
    for planned in plan:
        run = found[planned.id] = Progress(planned)
        needed = found[planned.needs] if planned.needs else None
        if needed is not None and needed.status != "finished":
            continue
        try:
            run.settings = planned.settle(needed.folder if needed else None)
        except PrunusError as error:
            run.status, run.error = "failed", str(error)
            continue
        if is_finished(run.settings.folder):
            run.status = "finished"
        elif planned.id in failures:
            run.status, run.error = "failed", failures[planned.id]
    return list(found.values())


class SweepFile:
    """The file in the folder of a sweep; what is read tells which runs failed."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        self.folder, self.path = folder.resolve(), folder.resolve() / "sweep.json"
        self._header = {"version": VERSION, **header}
        self._not_before = 0.0

    def failures(self) -> dict[str, str]:
        """Id of each run that failed when the sweep ran last -> its cause."""
        if not self.path.exists():
            return {}
        try:
            content = json.loads(self.path.read_text())
            if content["version"] == VERSION:
                runs = content["runs"]
                return {run["id"]: run["error"] for run in runs if run["status"] == "failed"}
        except (ValueError, KeyError, TypeError) as error:
            raise SettingError(
                f"{self.path} is not the state of a sweep ({error!r}): delete it, and the sweep "
                "goes on with the runs that are there"
            ) from error
        raise SettingError(
            f"{self.path} is of version {content['version']}, from another Prunus: use that, or "
            "another --out"
        )

    def write(self, runs: Sequence[Progress], *, at_once: bool = True) -> bool:
        """Write the state. Not `at_once`: only if that was not done just before; tells whether."""
        began = time.monotonic()
        if not at_once and began < self._not_before:
            return False
        content = {**self._header, "runs": [run.as_data(self.folder) for run in runs]}
        write_atomically(self.path, json.dumps(content, indent=1) + "\n")
        now = time.monotonic()
        self._not_before = now + max(0.2, (now - began) / _SHARE)
        return True
