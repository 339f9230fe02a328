"""Files of others: what they may choose only if the person at the keyboard says so."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from prunus.errors import SettingError
from prunus.files import expanded, inside, resolved, write_atomically
from prunus.lookup import names_of_code
from prunus.tables import printable

_OPTIONS = {"data_root": "--data", "out": "--out", "ticket": "the ticket's path"}
"""Settings that are paths, and how a person gives them instead."""


def trusted_in(
    path: Path, content: Any, *, trust: bool = False, typed: Collection[str] = ()
) -> list[str]:
    """The names of code in the `content` of a file that may be imported.

    None unless `trust` is set, or the person is asked on a terminal and says yes; the answer is
    remembered for this content of this file. Without it, paths that lead out of the file's folder
    are an error, except those of settings that the person `typed` instead, and names are refused
    once they are to be imported.
    """
    names = sorted(names_of_code(content))
    paths = {value: name for value, name in _paths(content) if name not in typed}
    paths = {value: name for value, name in paths.items() if leads_out(value, name, path.parent)}
    if not names and not paths:
        return []
    mark = hashlib.sha256(f"{resolved(path)}\n{json.dumps(content, default=str)}".encode())
    if trust or mark.hexdigest() in _remembered():
        return names
    if sys.stdin.isatty() and sys.stderr.isatty() and _says_yes(path, names, paths):
        write_atomically(_memory(), *(f"{line}\n" for line in {*_remembered(), mark.hexdigest()}))
        return names
    for value, setting in paths.items():
        raise SettingError(
            f"{path}: {setting}={value!r} leads out of the folder of this file: give "
            f"{_OPTIONS[setting]}, or --trust if you trust the file"
        )
    return []


def leads_out(value: str | Path, setting: str, folder: Path) -> bool:
    """Whether a path that a file gives for a `setting` is neither in the file's `folder` nor the
    default, which would be used without the file. It is relative to the current folder, as paths
    on the command line are.
    """
    from prunus.runs.settings import RunSettings

    path = Path.cwd() / expanded(value)
    known = RunSettings.model_fields.get(setting)
    if known is not None and os.path.normpath(path) == os.path.normpath(Path.cwd() / known.default):
        return False
    return not inside(path, folder)


def _paths(content: Any, setting: str | None = None) -> Iterator[tuple[str, str]]:
    """Each path in a file's content, and which setting it is.

    Settings are found at any depth, and in the names of a grid (`data_root, seed`).
    """
    if isinstance(content, str):
        if setting is not None:
            yield content, setting
    elif isinstance(content, Mapping):
        for name, value in content.items():
            parts = {part.strip() for part in str(name).split(",")}
            yield from _paths(value, next(iter(parts & set(_OPTIONS)), None))
    elif isinstance(content, list | tuple):
        for part in content:
            yield from _paths(part, setting)


def _says_yes(path: Path, names: list[str], paths: Mapping[str, str]) -> bool:
    lines = [f"  imports and runs {name}" for name in names]
    lines += [f"  uses {setting}={value!r}" for value, setting in paths.items()]
    head = f"{printable(str(path))} is a file that may come from others. It"
    print(head, *lines, sep="\n", file=sys.stderr)
    print("Do you trust it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _memory() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "prunus" / "trusted"


def _remembered() -> set[str]:
    try:
        return set(_memory().read_text().split())
    except (OSError, ValueError):
        return set()
