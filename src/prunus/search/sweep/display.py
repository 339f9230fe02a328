"""What a person sees of a sweep: live on a terminal, a line for each ended run anywhere else."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from prunus.search.sweep.watch import View
from prunus.tables import percent


class Display:
    """One for all workers, wherever they are. `quiet` shows nothing."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console = console or Console(quiet=quiet)
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
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def show(self, view: View) -> None:
        self._last = view
        if self._live is not None:
            self._live.update(render(view))


def render(view: View) -> RenderableType:
    """The live part: a bar for all, a line for each run under way."""
    head = Table.grid(padding=(0, 1))
    failed = f", {view.failed} failed" if view.failed else ""
    eta = f"ETA {_time(view.eta)}" if view.eta is not None else ""
    count = f"{view.finished} of {view.total} runs{failed}"
    bar = ProgressBar(total=1, completed=view.share, width=30)
    head.add_row(bar, percent(view.share, 0), Text(count), eta)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("run", "stage", "epoch", "kept", "validation"):
        table.add_column(name, justify="left" if name in ("run", "stage") else "right")
    for doing in view.doing:
        line = doing.line
        table.add_row(
            Text(doing.name),
            str(line.get("phase", "starting")),
            f"{doing.epochs}/{doing.of}",
            percent(line["density"]) if "density" in line else "",
            percent(line["validation_accuracy"]) if "validation_accuracy" in line else "",
        )
    return Group(head, table)


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
