"""How far the runs of a sweep are, and `sweep.json`, which says so to others."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from prunus.errors import PrunusError, SettingError
from prunus.files import parse_json, read_text, resolved, write_json
from prunus.runs.results import read_results
from prunus.runs.settings import RunSettings
from prunus.sweeps.planned import Planned, Ready, describe
from prunus.training.folder_lock import FolderLock

Status = Literal["pending", "running", "finished", "failed"]
VERSION = 1
_SHARE = 0.05
"""Of the time, at most, goes into writing the file."""


@dataclass
class RunState:
    """A planned run, and how far it is."""

    planned: Planned
    status: Status = "pending"
    error: str | None = None
    settings: RunSettings | None = None
    """None as long as they depend on what another run finds; and if that run is not done here,
    because the results are known already."""

    @property
    def folder(self) -> Path | None:
        """None as long as it is not known."""
        return self.settings.folder if self.settings else None

    def settle(self, needed: RunState | None) -> RunSettings:
        """Complete the settings; `needed` is the finished run that this one waits for."""
        if isinstance(self.planned, Ready):
            self.settings = self.planned.settings
        else:
            assert needed is not None and needed.folder is not None
            self.settings = self.planned.settle(needed.folder)
        return self.settings

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
    except SettingError:  # damaged: the run itself reports it
        return False
    return results is not None and results.finished


def chosen(plan: Sequence[Planned], patterns: Sequence[str]) -> frozenset[str]:
    """The ids of runs whose description fits one of the patterns, and of those that they need.

    Patterns are those of a shell, for the whole description; a whole description stands for itself,
    whatever brackets it has. Without any, all runs are chosen.
    """
    if not patterns:
        return frozenset(run.id for run in plan)
    found: set[str] = set()
    for pattern in patterns:
        fitting = _fitting(plan, pattern)
        if not fitting:
            example = f", such as {describe(plan[-1])!r}" if plan else ""
            inside = len(_fitting(plan, f"*{pattern}*"))
            hint = f": '*{pattern}*' fits {inside}" if inside else ""
            raise SettingError(
                f"--only {pattern!r} fits none of the {len(plan)} runs. It has to fit the whole "
                f"line of a run in --dry-run{example}; * stands for anything{hint}"
            )
        found |= fitting
    for run in reversed(plan):  # a run comes after the one that it needs
        if run.id in found and run.needs is not None:
            found.add(run.needs)
    return frozenset(found)


def _fitting(plan: Sequence[Planned], pattern: str) -> set[str]:
    named = ((run.id, describe(run)) for run in plan)
    return {id_ for id_, name in named if name == pattern or fnmatchcase(name, pattern)}


def spared(plan: Sequence[Planned], known: Container[str]) -> frozenset[str]:
    """The ids of runs that need not be done, because results are `known` under their keys.

    Tickets are not, so a run has to be done if another that is not known needs it.
    """
    found = {run.id for run in plan if run.key in known}
    for run in reversed(plan):  # a run comes after the one that it needs
        if run.id not in found and run.needs is not None:
            found.discard(run.needs)
    return frozenset(found)


def is_done(run: RunState, needed: RunState | None, spare: Container[str]) -> bool:
    """Settle a run; whether it is finished, here or (if it is spared) elsewhere."""
    elsewhere = run.planned.id in spare
    if elsewhere and needed is not None and needed.settings is None:
        return True
    if is_finished(run.settle(needed).folder):
        return True
    if elsewhere:
        run.settings = None  # there is no such folder
    return elsewhere


def survey(
    plan: Sequence[Planned], failures: Mapping[str, str], known: Container[str] = ()
) -> list[RunState]:
    """How far each run is, without starting any; `failures` are those of `SweepFile`."""
    states: dict[str, RunState] = {}
    spare = spared(plan, known)
    for planned in plan:
        run = states[planned.id] = RunState(planned)
        needed = states[planned.needs] if planned.needs else None
        if needed is not None and needed.status != "finished":
            continue
        try:
            done = is_done(run, needed, spare)
        except PrunusError as error:
            run.status, run.error = "failed", str(error)
            continue
        if done:
            run.status = "finished"
        elif planned.id in failures:
            run.status, run.error = "failed", failures[planned.id]
    return list(states.values())


class SweepFile:
    """The file in a sweep's folder. Only the failures are ever read from it."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        self.folder, self.path = resolved(folder), resolved(folder) / "sweep.json"
        self._header = {"version": VERSION, **header}
        self._not_before = 0.0
        self.lock: FolderLock | None = None
        """Of the sweep at work. It notices if the folder is moved, so that none is made anew."""

    def failures(self) -> dict[str, str]:
        """Id of each run that failed when the sweep ran last -> its cause."""
        if not self.path.exists():
            return {}
        try:
            content = parse_json(read_text(self.path))
            if content["version"] == VERSION:
                runs = content["runs"]
                return {run["id"]: run["error"] for run in runs if run["status"] == "failed"}
        except (ValueError, KeyError, TypeError) as error:
            raise SettingError(
                f"{self.path} is not the state of a sweep ({error!r}): delete it, and the sweep "
                "resumes from the runs that are there"
            ) from error
        raise SettingError(
            f"{self.path} is of version {content['version']}, from another Prunus: use that, or "
            "another --out"
        )

    def write(self, runs: Sequence[RunState], *, at_once: bool = True) -> bool:
        """Write the state; if not `at_once`, then not too often. Returns whether it was written."""
        began = time.monotonic()
        if not at_once and began < self._not_before:
            return False
        if self.lock is not None:
            self.lock.check()
        content = {**self._header, "runs": [run.as_data(self.folder) for run in runs]}
        write_json(self.path, content)
        now = time.monotonic()
        self._not_before = now + max(0.2, (now - began) / _SHARE)
        return True
