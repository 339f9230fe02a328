"""Command lines that cannot be understood: what is wrong with them, in words."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cyclopts import App, CycloptsError, MissingArgumentError, UnusedCliTokensError
from cyclopts.exceptions import UnknownOptionError

_OF_RUNS = {"train", "search", "prune", "retrain"}


def mistyped(app: App, error: CycloptsError, words: Sequence[str]) -> str:
    """What was wrong with the `words` that a person typed."""
    command = next(iter(error.command_chain or ()), "")
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return _one_too_many(app, command, error.unused_tokens[0], list(words))
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.argument.names[0].removeprefix("--").upper()
        if not error.keyword:
            return f"{name} is missing: prunus {command} {name}; prunus {command} --help says more"
        return f"{error.keyword} needs a value; prunus {command} --help says which"
    text = str(error)
    if isinstance(error, UnknownOptionError) and command in _OF_RUNS and "Did you" not in text:
        text += (
            " Settings without an option of their own are given with --set, such as --set "
            "method.granularity=filter or --set recipe.lr=0.05"
        )
    return text


def _one_too_many(app: App, command: str, word: str, words: list[str]) -> str:
    before = words[: words.index(word)] if word in words else []
    number = next((i for i, w in enumerate(reversed(before)) if w.startswith("-")), 0)
    if number:
        option, *values = before[-number - 1 :]
        for argument in app[command].assemble_argument_collection():
            if option in argument.names and argument.token_count()[1]:
                again = " ".join(f"{option} {shlex.quote(value)}" for value in (*values, word))
                return f"{option} takes one value at a time, so give it once for each: {again}"
    return f"nothing takes {word!r} here; prunus {command} --help shows what is expected"
