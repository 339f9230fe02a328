"""What a command says: its result on stdout, for people or as JSON, and the rest on stderr."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, TextIO

from cyclopts import Parameter

from prunus.errors import PrunusWarning
from prunus.tables import printable

AsJson = Annotated[bool, Parameter("--json", negative="", show_default=False)]
"""The flag of every command that prints its result as JSON if asked."""


@contextmanager
def answering(*, as_json: bool) -> Iterator[Callable[[Any], None]]:
    """Gives a function for the result of a command, which prints it if it is wanted `as_json`.

    Then it is the only thing on stdout: whatever else is printed within this context is a message.
    """
    if not as_json:
        yield lambda _: None
        return
    stdout = sys.stdout
    with redirect_stdout(sys.stderr):
        yield lambda result: print_json(result, stdout)


def print_json(result: Any, file: TextIO | None = None) -> None:
    """One document, on stdout if nothing else is said."""
    print(json.dumps(result, indent=1, default=str), file=file)


def next_step(program: str, *words: object) -> None:
    """What a person probably wants to do now, as a command to copy."""
    print(f"\nNext: {printable(shlex.join([_as_typed(program), *map(str, words)]))}")


def _as_typed(program: str) -> str:
    """A program of this environment: by its name, or by its path where the shell would not find it.

    That is so after `.venv/bin/prunus ...` and `make demo`.
    """
    folder = Path(sys.executable).parent
    found = shutil.which(program)
    if found is not None:
        places = (Path(found).parent.resolve(), Path(found).resolve().parent)  # pipx makes links
        if folder.resolve() in places:
            return program
    ours = folder / program
    if not ours.exists():  # installed for one user, whose programs are elsewhere
        return program
    return str(ours.relative_to(Path.cwd()) if ours.is_relative_to(Path.cwd()) else ours)


def say(message: str) -> None:
    """To the person. Parts may come from a file: they add no escape codes and no lines of ours."""
    first, *more = (printable(line) for line in message.splitlines())
    print(first, *(f"  {line.strip()}" for line in more), sep="\n", file=sys.stderr)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Stands in for `warnings.showwarning`."""
    if issubclass(category, PrunusWarning):
        say(f"prunus: warning: {message}")
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        print(text, file=file or sys.stderr)
