"""A whole sweep: its runs, done by any executor."""

from __future__ import annotations

import queue
import time
from collections import defaultdict
from collections.abc import Container, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from prunus.errors import PrunusError
from prunus.lookup import trusted_names
from prunus.runs.results import RunResults
from prunus.sweeps.display import Display, Watch
from prunus.sweeps.experiment import Experiment
from prunus.sweeps.plan import make_plan
from prunus.sweeps.planned import Planned
from prunus.sweeps.state import RunState, SweepFile, is_done, spared
from prunus.sweeps.work import RunFailedError, RunStoppedError, run_one
from prunus.training.folder_lock import FolderLock
from prunus.training.signals import StoppedError, StopRequests

_TICK = 0.25
"""Seconds between two looks at what the runs do."""


def run_sweep(
    experiment: Experiment,
    out: Path,
    executor: Executor,
    *,
    plan: Sequence[Planned] | None = None,
    threads: int = 1,
    retry: bool = False,
    known: Container[str] = (),
    wanted: Container[str] | None = None,
    display: Display | None = None,
) -> list[RunState]:
    """Do the runs of an experiment, below `out`, that are not finished yet; returns all of them.

    `executor` is any `concurrent.futures.Executor` whose workers can import Prunus and see the same
    files; it stays open. `plan` is the experiment's, if it has been made already. Runs that failed
    before are left alone unless `retry` is set. Runs whose keys are `known` count as finished.
    With ids in `wanted` (see `chosen`), does and returns these alone.
    """
    runs = make_plan(experiment, out) if plan is None else plan
    file = sweep_file(experiment, out)
    file.lock = lock = FolderLock(out)
    lock.acquire()
    try:
        shown = display or Display(quiet=True)
        if wanted is None:
            wanted = {run.id for run in runs}
        spare = spared([run for run in runs if run.id in wanted], known)
        scheduler = Scheduler(
            runs, executor, file, shown, threads, retry=retry, spare=spare, wanted=wanted
        )
        return scheduler.run()
    finally:
        lock.release()


def sweep_file(experiment: Experiment, out: Path) -> SweepFile:
    """The file that holds the state of the sweep."""
    header = {"name": experiment.name, "experiment": experiment.model_dump(mode="json")}
    return SweepFile(out, header)


@dataclass
class _Work:
    """A submitted run, and the planned runs that share its folder."""

    future: Future[RunResults]
    started_before: int
    """When the run was last started, to notice when this one starts."""
    runs: list[RunState] = field(default_factory=list)


class Scheduler:
    """Submits runs as soon as what they need is there, and records how each ends.

    Finished runs are known by their `results.json` and never repeated; those in `spare` are not
    done either. After a failure the others continue, and runs that need the failed one stay
    pending. `file` lists the runs that failed before: `retry` tries them again. It also lists the
    runs that are not `wanted`, which are left as they are.
    """

    def __init__(
        self,
        plan: Sequence[Planned],
        executor: Executor,
        file: SweepFile,
        display: Display,
        threads: int = 1,
        *,
        retry: bool = False,
        spare: Container[str] = (),
        wanted: Container[str],
    ) -> None:
        self._all = [RunState(planned) for planned in plan]
        self.runs = [run for run in self._all if run.planned.id in wanted]
        self._by_id = {run.planned.id: run for run in self._all}
        self._waiting: dict[str | None, list[RunState]] = defaultdict(list)
        for run in self._all:
            self._waiting[run.planned.needs].append(run)
        self._executor, self._file, self._display = executor, file, display
        self._threads, self._spare, self._wanted = threads, spare, wanted
        self._failed_before = {
            id_: cause for id_, cause in file.failures().items() if not (retry and id_ in wanted)
        }
        self._work: dict[Path, _Work] = {}
        self._ended: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._watch = Watch(self.runs)

    def run(self) -> list[RunState]:
        """Until nothing that is wanted is left to do. A signal stops it, with a `StoppedError`."""
        with StopRequests() as stop, self._display:
            try:
                for run in self._waiting[None]:
                    self._consider(run)
                self._file.write(self._all)
                self._loop(stop)
            finally:
                for work in self._work.values():
                    work.future.cancel()
                    for run in work.runs:
                        run.status = "pending"
                self._file.write(self._all)
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
            self._file.write(self._all, at_once=False)

    def _consider(self, run: RunState) -> None:
        """Submit a run whose needs are met, unless it is finished, under way or failed before."""
        planned = run.planned
        needed = self._by_id[planned.needs] if planned.needs else None
        wanted = planned.id in self._wanted
        if not wanted and needed is not None and needed.settings is None:
            return  # what it needs was not done here, because its results are known
        try:
            done = is_done(run, needed, self._spare)
        except PrunusError as error:
            self._fail(run, str(error))
            return
        if done:
            self._finish(run)
            return
        settings = run.settings
        assert settings is not None, "is_done settles what is not done"
        folder = settings.folder
        if planned.id in self._failed_before:
            run.status, run.error = "failed", self._failed_before[planned.id]
            self._watch.ended(run)
            return
        if not wanted:
            return
        if folder not in self._work:
            content = settings.model_dump(mode="json")
            future = self._executor.submit(run_one, content, self._threads, trusted_names())
            self._work[folder] = _Work(future, _started(folder))
            future.add_done_callback(lambda _: self._ended.put(folder))
        self._work[folder].runs.append(run)

    def _collect(self, folder: Path) -> None:
        work = self._work.pop(folder)
        try:
            work.future.result()
        except (RunStoppedError, CancelledError):  # resumed next time
            for run in work.runs:
                run.status = "pending"
        except Exception as error:
            known = isinstance(error, RunFailedError)
            cause = str(error) if known else f"{type(error).__name__}: {error}"
            for run in work.runs:
                self._fail(run, cause)
        else:
            for run in work.runs:
                self._finish(run, now=True)

    def _finish(self, run: RunState, *, now: bool = False) -> None:
        run.status, run.error = "finished", None
        self._watch.ended(run, now=now)
        if now:
            self._display.say(self._watch.line(run))
        for other in self._waiting[run.planned.id]:
            self._consider(other)

    def _fail(self, run: RunState, cause: str) -> None:
        run.status, run.error = "failed", cause
        self._watch.ended(run)
        self._display.say(self._watch.line(run))

    def _look(self) -> None:
        for folder, work in self._work.items():
            if work.future.running() or _started(folder) != work.started_before:
                for run in work.runs:
                    if run.status != "running":
                        run.status = "running"
                        self._watch.began(run)


def _started(folder: Path) -> int:
    """When a run last started, by the time of its settings file: starting, it writes that."""
    try:
        return (folder / "settings.yaml").stat().st_mtime_ns
    except OSError:
        return 0
