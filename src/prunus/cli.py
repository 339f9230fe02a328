"""The command line: `prunus demo`, `prunus inspect`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from prunus.demo.settings import Settings
from prunus.errors import PrunusError
from prunus.version import __version__

app = App(
    name="prunus",
    help="Finds the small network inside a big one.",
    version=__version__,
)


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
        print(f"{name.replace('_', ' '):<14}{value}")
    print(f"\n{content.mask}")


def main() -> None:
    """Run a command; errors that Prunus raises on purpose are messages, not tracebacks."""
    try:
        app()
    except PrunusError as error:
        print(f"prunus: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("prunus: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
