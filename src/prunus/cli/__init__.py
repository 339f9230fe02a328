"""The command line. Commands import what they need when they run, so that `--help` is instant."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TextIO

from cyclopts import App

from prunus.cli import runs
from prunus.cli.demo import demo
from prunus.cli.deploy import deploy
from prunus.cli.report import report
from prunus.cli.reproduce import reproduce
from prunus.cli.sweep import sweep
from prunus.errors import PrunusError, PrunusWarning, in_words
from prunus.tables import printable
from prunus.version import __version__

app = App(
    name="prunus",
    help="Finds the small network inside a big one.",
    version=__version__,
)
for command in (
    *(runs.train, runs.search, runs.prune, runs.retrain),
    *(sweep, reproduce, report, deploy, demo),
):
    app.command(command)


@app.command
def inspect(ticket: Path) -> None:
    """Show what a ticket holds: where it came from, and how much of each layer it keeps.

    Parameters
    ----------
    ticket
        A ticket file.
    """
    from dataclasses import asdict

    from prunus.tickets.ticket import Ticket

    content = Ticket.load(ticket)
    for name, value in {**asdict(content.manifest), "content_hash": content.content_hash}.items():
        text = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value
        if text != "":
            print(f"{name.replace('_', ' '):<14}{printable(str(text))}")
    print(f"\n{content.mask if content.mask else 'No mask: a dense network.'}")


def main() -> None:
    """Run a command; errors that Prunus raises on purpose are messages, not tracebacks."""
    warnings.showwarning = _show_warning
    try:
        try:
            app(sys.argv[1:])
        finally:
            sys.stdout.flush()  # here, where a reader that is gone is noticed
    except PrunusError as error:
        _say(f"prunus: {error}")
        sys.exit(getattr(error, "status", 2))
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # nor shall Python write there when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _say(f"prunus: {in_words(error)}")
        sys.exit(1)
    except KeyboardInterrupt:
        print("prunus: interrupted; the same command resumes", file=sys.stderr)
        sys.exit(130)


def _say(message: str) -> None:
    """To the person. Parts may come from a file: they add no escape codes and no lines of ours."""
    first, *more = map(printable, message.splitlines())
    print(first, *(f"  {line.strip()}" for line in more), sep="\n", file=sys.stderr)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, PrunusWarning):
        _say(f"prunus: warning: {message}")
    else:
        print(
            warnings.formatwarning(message, category, filename, lineno, line),
            file=file or sys.stderr,
        )
