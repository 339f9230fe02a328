"""What a person sees of a sweep: live on a terminal, a line for each ended run anywhere else.

Everything comes from the files that runs write, so it works for any executor.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from prunus.files import parse_json, read_text
from prunus.runs.results import METRICS, EpochMetrics, Values, parse_epoch, read_results
from prunus.sweeps.planned import describe
from prunus.sweeps.state import RunState
from prunus.tables import percent, printable
from prunus.tasks.metrics import ACCURACY, MetricInfo
from prunus.training.progress import RunConsole


@dataclass(frozen=True)
class Activity:
    """How far a run under way has come."""

    name: str
    epochs: int
    """Trained so far, over all stages."""
    of: int
    last: EpochMetrics | None
    """After its last epoch."""


@dataclass(frozen=True)
class View:
    """The whole sweep at one moment."""

    total: int
    finished: int
    failed: int
    share: float
    """The fraction of all epochs that is done."""
    eta: float | None
    """Seconds; None as long as it cannot be known."""
    running: tuple[Activity, ...]


class Watch:
    """Counts epochs: those done since the sweep began tell how long the others will take."""

    def __init__(self, runs: Sequence[RunState]) -> None:
        self._runs = runs
        self._started = time.monotonic()
        self._before: dict[str, int] = {}
        """Epochs that runs under way had when they started, by id."""
        self._done_now = 0
        self._ended: set[str] = set()

    def began(self, run: RunState) -> None:
        self._before[run.planned.id] = _epochs(run.folder)[0]

    def ended(self, run: RunState, *, now: bool = False) -> None:
        """`now`: it was done just now, rather than found finished."""
        planned = run.planned
        self._ended.add(planned.id)
        before = self._before.pop(planned.id, 0)
        if now:
            self._done_now += max(0, planned.epochs - before)

    def view(self) -> View:
        running, done_now = [], self._done_now
        total = sum(run.planned.epochs for run in self._runs)
        done = sum(run.planned.epochs for run in self._runs if run.planned.id in self._ended)
        for run in self._runs:
            if run.status == "running":
                count, last = _epochs(run.folder)
                done += count
                done_now += max(0, count - self._before.get(run.planned.id, 0))
                running.append(Activity(describe(run.planned), count, run.planned.epochs, last))
        elapsed = time.monotonic() - self._started
        return View(
            total=len(self._runs),
            finished=sum(run.status == "finished" for run in self._runs),
            failed=sum(run.status == "failed" for run in self._runs),
            share=min(1.0, done / total) if total else 1.0,
            eta=elapsed / done_now * max(0, total - done) if done_now else None,
            running=tuple(running),
        )

    def line(self, run: RunState) -> str:
        """How a run ended, in words."""
        count = sum(one.planned.id in self._ended for one in self._runs)
        total = len(self._runs)
        start = f"[{count:>{len(str(total))}}/{total}] {describe(run.planned)}: "
        if run.status == "failed":
            return f"{start}failed: {run.error}"
        results = read_results(run.folder) if run.folder else None
        if results is None or not results.stages:
            return f"{start}finished"
        stage, metric = results.stages[-1], results.metric
        parts = [f"kept {percent(stage.density)}"]
        for split, values in (("validation", stage.validation), ("test", stage.test)):
            if metric.name in values:
                parts.append(f"{split} {metric.text(values[metric.name])}")
        return start + ", ".join(parts)


class Display:
    """Shows a sweep, whichever workers do it. `quiet` shows nothing."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console = console or RunConsole(quiet=quiet)
        terminal = self.console.is_terminal and not self.console.quiet
        self._live = Live(console=self.console, transient=True) if terminal else None
        self._last: View | None = None

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: str) -> None:
        """Print a line, above the live part if there is one."""
        if self._live is None and self._last is not None and self._last.eta is not None:
            line += f"  ETA {_time(self._last.eta)}"
        self.console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    def show(self, view: View) -> None:
        self._last = view
        if self._live is not None:
            self._live.update(render(view))


def render(view: View) -> RenderableType:
    """The live part: a bar for the sweep, a line for each run under way."""
    head = Table.grid(padding=(0, 1))
    failed = f", {view.failed} failed" if view.failed else ""
    eta = f"ETA {_time(view.eta)}" if view.eta is not None else ""
    count = f"{view.finished} of {view.total} runs{failed}"
    bar = ProgressBar(total=1, completed=view.share, width=30)
    head.add_row(bar, percent(view.share, 0), Text(count), eta)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("run", "stage", "epoch", "kept", "validation"):
        table.add_column(name, justify="left" if name in ("run", "stage") else "right")
    for run in view.running:
        last = run.last
        table.add_row(
            Text(printable(run.name)),
            Text(printable(last.stage)) if last else "starting",
            f"{run.epochs}/{run.of}",
            percent(last.density) if last else "",
            _first_value(last.validation) if last else "",
        )
    return Group(head, table)


def _first_value(values: Values) -> str:
    """The metric that picks use, before the results say what its unit is."""
    for name, value in values.items():
        return (ACCURACY if name == ACCURACY.name else MetricInfo(name)).text(value)
    return ""


def _epochs(folder: Path | None) -> tuple[int, EpochMetrics | None]:
    """How many epochs a run has trained, and the last of them."""
    try:
        text = read_text(folder / METRICS) if folder else ""
    except OSError:
        return 0, None
    lines = text[: text.rfind("\n") + 1].splitlines()  # without one that is being written
    try:
        return len(lines), parse_epoch(parse_json(lines[-1])) if lines else None
    except ValueError:  # damaged: a sweep does not end because it cannot be shown
        return len(lines), None


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
