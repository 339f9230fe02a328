"""What the runs of a sweep are doing, from the files they write; so it works for any executor."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prunus.search.execution import read_results
from prunus.search.sweep.state import Progress
from prunus.tables import percent


@dataclass(frozen=True)
class Doing:
    """Where a run under way is; the last line of its metrics."""

    name: str
    epochs: int
    """Done, of all its rounds."""
    of: int
    line: dict[str, Any]


@dataclass(frozen=True)
class View:
    """The whole sweep at one moment."""

    total: int
    finished: int
    failed: int
    share: float
    """Of all epochs, how many are done."""
    eta: float | None
    """Seconds; None as long as nobody can know."""
    doing: tuple[Doing, ...]


class Watch:
    """Counts epochs: those done since the sweep began tell how long the others will take."""

    def __init__(self, runs: Sequence[Progress]) -> None:
        self._runs = runs
        self._started = time.monotonic()
        self._before: dict[str, int] = {}
        """Epochs that runs under way had done when they began, by id."""
        self._done_now = 0
        self._ended: set[str] = set()

    def began(self, run: Progress) -> None:
        self._before[run.planned.id] = len(_lines(run.folder))

    def ended(self, run: Progress, *, now: bool = False) -> None:
        """`now`: by its own work, not because it had been finished before."""
        planned = run.planned
        self._ended.add(planned.id)
        before = self._before.pop(planned.id, 0)
        if now:
            self._done_now += max(0, planned.epochs - before)

    def view(self) -> View:
        doing, done_now = [], self._done_now
        total = sum(run.planned.epochs for run in self._runs)
        done = sum(run.planned.epochs for run in self._runs if run.planned.id in self._ended)
        for run in self._runs:
            if run.status == "running":
                lines = _lines(run.folder)
                last = _parse(lines[-1]) if lines else {}
                done += len(lines)
                done_now += max(0, len(lines) - self._before.get(run.planned.id, 0))
                doing.append(Doing(describe(run), len(lines), run.planned.epochs, last))
        elapsed = time.monotonic() - self._started
        return View(
            total=len(self._runs),
            finished=sum(run.status == "finished" for run in self._runs),
            failed=sum(run.status == "failed" for run in self._runs),
            share=min(1.0, done / total) if total else 1.0,
            eta=elapsed / done_now * max(0, total - done) if done_now else None,
            doing=tuple(doing),
        )

    def line(self, run: Progress) -> str:
        """How a run ended, in words, for where there is no live display too."""
        count = len(self._ended)
        start = f"[{count:>{len(str(len(self._runs)))}}/{len(self._runs)}] {describe(run)}: "
        if run.status == "failed":
            return f"{start}failed: {run.error}"
        assert run.folder is not None
        results = read_results(run.folder) or {"stages": [{}]}
        return start + numbers(results["stages"][-1])


def describe(run: Progress) -> str:
    """A run in words: its line of the tables and its place there."""
    planned = run.planned
    parts = [f"{name}={value}" for name, value in planned.parameters.items()]
    if planned.command == "retrain":
        parts.append(f"{planned.stage} re-trained")
    elif planned.command == "prune":
        parts.append("pruned")
    return " ".join([planned.task, planned.row, *parts, f"seed {planned.seed}"])


def numbers(line: dict[str, Any]) -> str:
    """Density and accuracy of a stage or an epoch."""
    names = {"density": "kept", "validation_accuracy": "validation", "test_accuracy": "test"}
    return ", ".join(f"{word} {percent(line[k])}" for k, word in names.items() if k in line)


def _lines(folder: Path | None) -> list[str]:
    if folder is None:
        return []
    try:
        return (folder / "metrics.jsonl").read_text().splitlines()
    except OSError:
        return []


def _parse(line: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(line)
    except ValueError:  # half written
        return {}
    return content
