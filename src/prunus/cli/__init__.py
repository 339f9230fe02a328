"""The command line. Commands import what they need when they run, so that `--help` is instant."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable

from cyclopts import App, CycloptsError, Group

from prunus.cli.demo import demo
from prunus.cli.deploy import deploy
from prunus.cli.examples import epilogue
from prunus.cli.find import inspect, methods, runs, tasks
from prunus.cli.mistyped import mistyped
from prunus.cli.output import say, show_warning
from prunus.cli.report import report
from prunus.cli.reproduce import reproduce
from prunus.cli.run import prune, retrain, search, train
from prunus.cli.sweep import sweep
from prunus.errors import PrunusError, in_words
from prunus.version import __version__

app = App(
    name="prunus",
    help="Finds the small network inside a big one.",
    version=__version__,
    help_format="markdown",
    help_epilogue="prunus COMMAND --help has the options of a command, and two examples.",
)
_GROUPS: dict[str, tuple[Callable[..., None], ...]] = {
    "One run": (train, search, prune, retrain),
    "Many runs": (sweep, report, reproduce, demo),
    "What was found": (inspect, deploy),
    "Finding one's way": (tasks, methods, runs),
}
for title, commands in _GROUPS.items():
    group = Group.create_ordered(title)
    for place, command in enumerate(commands):  # not by the alphabet
        examples = epilogue(command.__name__)
        app.command(command, group=group, sort_key=place, help_epilogue=examples)
app.register_install_completion_command(
    help="Let the shell complete commands and options (bash, zsh, fish)."
)


def main() -> None:
    """Run a command; errors that Prunus raises on purpose are messages, not tracebacks.

    docs/commands.md has the exit codes.
    """
    warnings.showwarning = show_warning
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    try:
        try:
            app(sys.argv[1:], exit_on_error=False, print_error=False)
        finally:
            sys.stdout.flush()  # here, where a reader that is gone is noticed
    except CycloptsError as error:
        say(f"prunus: {mistyped(app, error, sys.argv[1:])}")
        sys.exit(2)
    except PrunusError as error:
        say(f"prunus: {error}")
        sys.exit(getattr(error, "status", 2))
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # nor shall Python write there when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        say(f"prunus: {in_words(error)}")
        sys.exit(1)
    except KeyboardInterrupt:
        print("prunus: interrupted; the same command resumes", file=sys.stderr)
        sys.exit(130)
