"""The command line. Commands import what they need when they run, so that `--help` is instant."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated, TextIO

from cyclopts import App, Parameter

from prunus.cli import runs
from prunus.cli.deploy import deploy
from prunus.cli.report import report
from prunus.cli.sweep import sweep
from prunus.demo.settings import Settings
from prunus.errors import PrunusError, PrunusWarning
from prunus.version import __version__

app = App(
    name="prunus",
    help="Finds the small network inside a big one.",
    version=__version__,
)
for command in (runs.train, runs.search, runs.prune, runs.retrain, deploy, sweep, report):
    app.command(command)


@app.command
def demo(
    out: Path = Path("demo"),
    settings: Annotated[
        Settings, Parameter(name="*", consume_multiple=True, negative=())
    ] = Settings(),  # noqa: B008 (frozen)
) -> None:
    """See the lottery ticket hypothesis happen on embedded data, in about two minutes.

    Trains a small ConvNet on scikit-learn's digits; searches tickets with CS and IMP; re-trains
    them beside random masks; prints a table and writes tickets, results and an HTML page. Run it
    again after an interruption and it goes on where it was.

    Parameters
    ----------
    out
        Folder for the results, the tickets and the page.
    """
    from prunus.demo.show import show

    show(out, settings)


@app.command
def inspect(ticket: Path) -> None:
    """Show what a ticket holds: where it came from, and how much of each layer it keeps.

    Parameters
    ----------
    ticket
        A ticket file.
    """
    from dataclasses import asdict

    from prunus.ticket import Ticket

    content = Ticket.load(ticket)
    for name, value in {**asdict(content.manifest), "content_hash": content.content_hash}.items():
        text = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value
        print(f"{name.replace('_', ' '):<14}{text}")
    print(f"\n{content.mask if content.mask else 'No mask: a dense network.'}")


def main() -> None:
    """Run a command; errors that Prunus raises on purpose are messages, not tracebacks."""
    warnings.showwarning = _show_warning
    try:
        app(sys.argv[1:])
    except PrunusError as error:
        print(f"prunus: {error}", file=sys.stderr)
        sys.exit(getattr(error, "status", 2))
    except KeyboardInterrupt:
        print("prunus: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, PrunusWarning):
        print(f"prunus: warning: {message}", file=sys.stderr)
    else:
        print(
            warnings.formatwarning(message, category, filename, lineno, line),
            file=file or sys.stderr,
        )
