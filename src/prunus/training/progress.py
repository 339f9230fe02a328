"""What a person sees of a run: a bar with an ETA on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class RunConsole(Console):
    """Where runs and sweeps print."""

    def on_broken_pipe(self) -> None:
        """Tell our caller, rather than end the program without a word."""
        raise BrokenPipeError


def progress_bar(console: Console) -> Bar:
    """Percent done, times, and the current stage."""
    return Bar(
        TextColumn("{task.percentage:>3.0f}%"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.description}"),
        console=console,
    )


class RunProgress:
    """Shows how far a run of `total` steps has come; `quiet` (all processes but one): nothing."""

    def __init__(self, total: int, *, quiet: bool = False, console: Console | None = None) -> None:
        self.console = console or RunConsole(quiet=quiet)
        self.total = total
        self._done = self._begun_at = 0
        self._started = time.monotonic()
        self._bar = progress_bar(self.console) if self.console.is_terminal and not quiet else None
        self._task = self._bar.add_task("", total=total) if self._bar else None

    def __enter__(self) -> RunProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin_at(self, done: int) -> None:
        """These steps were done earlier, so they say nothing about the speed."""
        self._done = self._begun_at = done
        if self._bar is not None and self._task is not None:
            self._bar.reset(self._task, total=self.total, completed=done)

    def advance(self, stage: str) -> None:
        """One more step."""
        self._done += 1
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, description=stage)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def say_with_eta(self, line: str) -> None:
        """Print a line; if there is no bar, followed by the time left."""
        if self._bar is None and self._done > self._begun_at:
            elapsed = time.monotonic() - self._started
            left = elapsed / (self._done - self._begun_at) * (self.total - self._done)
            line += f"  ETA {timedelta(seconds=round(left))}"
        self.say(line)
