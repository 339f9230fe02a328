"""Files: written so that a reader sees the old one or the new one, and read if they are files."""

import json
import os
from pathlib import Path
from typing import Any

from prunus_runtime.atomic import read_file as read_file
from prunus_runtime.atomic import write_atomically as write_atomically

DEEPEST = 50
"""Values inside of values, in a file of data; ours go ten deep."""


def expanded(path: str | os.PathLike[str]) -> Path:
    """With a home folder for `~`; the `~` of a user whom there is not is a name like any other."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def resolved(path: str | os.PathLike[str]) -> Path:
    """Absolute and without links, where they lead somewhere: those in a circle are no error yet."""
    return Path(os.path.realpath(path))


def inside(path: str | os.PathLike[str], folder: str | os.PathLike[str] = ".") -> bool:
    """Whether a path, relative to `folder`, stays below it."""
    # Not resolved: whoever owns the folder may have links in it.
    folder = os.path.normpath(Path.cwd() / folder)
    return Path(os.path.normpath(Path(folder) / path)).is_relative_to(folder)


def read_text(path: str | os.PathLike[str], errors: str = "strict") -> str:
    """The text of a regular file; see `read_file`."""
    return read_file(path).decode(errors=errors)


def parse_json(text: str, deepest: int = DEEPEST) -> Any:
    """The data in a JSON text. Whatever is wrong with it is a `ValueError`."""
    too_deep = ValueError(f"it is nested more than {deepest} deep")
    try:
        content = json.loads(text)
    except RecursionError:
        raise too_deep from None
    level = [content]
    for _ in range(deepest):
        parts = (part for part in level if isinstance(part, dict | list))
        level = [v for part in parts for v in (part.values() if isinstance(part, dict) else part)]
    if level:
        raise too_deep
    return content
