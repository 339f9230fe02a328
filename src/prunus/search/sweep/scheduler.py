"""Getting the runs of a plan done, by any executor."""

from __future__ import annotations

import queue
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prunus.errors import PrunusError
from prunus.search.sweep.display import Display
from prunus.search.sweep.planned import Planned
from prunus.search.sweep.state import Progress, SweepFile, is_finished
from prunus.search.sweep.watch import Watch
from prunus.search.sweep.work import RunFailedError, RunStoppedError, run_one
from prunus.training.signals import StoppedError, StopRequests

_TICK = 0.25
"""Seconds between two looks at what the runs do."""


@dataclass
class _Work:
    """A run that was submitted, for the lines of the tables that share it."""

    future: Future[dict[str, Any]]
    started_before: int
    """When somebody last began with the run, to notice when this one does."""
    lines: list[Progress] = field(default_factory=list)


class Scheduler:
    """Submits runs as soon as what they need is there, and notes what becomes of each.

    Finished runs are known by their `results.json` and never repeated. A failure is noted and the
    others go on; runs that need a failed one stay pending. `file` knows the runs that failed
    before: `retry` tries them again.
    """

    def __init__(
        self,
        plan: Sequence[Planned],
        executor: Executor,
        file: SweepFile,
        display: Display,
        *,
        threads: int = 1,
        retry: bool = False,
    ) -> None:
        self.runs = [Progress(planned) for planned in plan]
        self._by_id = {run.planned.id: run for run in self.runs}
        self._waiting: dict[str | None, list[Progress]] = defaultdict(list)
        for run in self.runs:
            self._waiting[run.planned.needs].append(run)
        self._executor, self._file, self._display = executor, file, display
        self._threads = threads
        self._failed_before = {} if retry else file.failures()
        self._work: dict[Path, _Work] = {}
        self._ended: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._watch = Watch(self.runs)

    def run(self) -> list[Progress]:
        """Until nothing is left to do. A signal stops it, with a `StoppedError`."""
        with StopRequests() as stop, self._display:
            try:
                for run in self._waiting[None]:
                    self._consider(run)
                self._file.write(self.runs)
                self._loop(stop)
            finally:
                for work in self._work.values():
                    work.future.cancel()
                    for run in work.lines:
                        run.status = "pending"
                self._file.write(self.runs)
        return self.runs

    def _loop(self, stop: StopRequests) -> None:
        next_look = 0.0
        while self._work:
            if stop.received:
                raise StoppedError(stop.received)
            with suppress(queue.Empty):
                self._collect(self._ended.get(timeout=_TICK))
            if time.monotonic() >= next_look:
                self._look()
                self._display.show(self._watch.view())
                next_look = time.monotonic() + _TICK
            self._file.write(self.runs, at_once=False)

    def _consider(self, run: Progress) -> None:
        """Submit a run whose needs are met, unless it is finished, under way or failed before."""
        planned = run.planned
        needed = self._by_id[planned.needs].folder if planned.needs else None
        try:
            run.settings = settings = planned.settle(needed)
        except PrunusError as error:
            self._fail(run, str(error))
            return
        folder = settings.folder
        if is_finished(folder):
            self._finish(run)
            return
        if planned.id in self._failed_before:
            run.status, run.error = "failed", self._failed_before[planned.id]
            self._watch.ended(run)
            return
        if folder not in self._work:
            content = settings.model_dump(mode="json")
            future = self._executor.submit(run_one, content, self._threads)
            self._work[folder] = _Work(future, _began(folder))
            future.add_done_callback(lambda _: self._ended.put(folder))
        self._work[folder].lines.append(run)

    def _collect(self, folder: Path) -> None:
        work = self._work.pop(folder)
        try:
            work.future.result()
        except (RunStoppedError, CancelledError):  # to be gone on with next time
            for run in work.lines:
                run.status = "pending"
        except Exception as error:
            known = isinstance(error, RunFailedError)
            cause = str(error) if known else f"{type(error).__name__}: {error}"
            for run in work.lines:
                self._fail(run, cause)
        else:
            for run in work.lines:
                self._finish(run, now=True)

    def _finish(self, run: Progress, *, now: bool = False) -> None:
        run.status, run.error = "finished", None
        self._watch.ended(run, now=now)
        if now:
            self._display.say(self._watch.line(run))
        for other in self._waiting[run.planned.id]:
            self._consider(other)

    def _fail(self, run: Progress, cause: str) -> None:
        run.status, run.error = "failed", cause
        self._watch.ended(run)
        self._display.say(self._watch.line(run))

    def _look(self) -> None:
        for folder, work in self._work.items():
            if work.future.running() or _began(folder) != work.started_before:
                for run in work.lines:
                    if run.status != "running":
                        run.status = "running"
                        self._watch.began(run)


def _began(folder: Path) -> int:
    """When a run last began, in a clock of its own: it then writes its settings."""
    try:
        return (folder / "settings.yaml").stat().st_mtime_ns
    except OSError:
        return 0
