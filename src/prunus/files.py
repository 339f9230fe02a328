"""Files: written so that a reader sees the old content or the new, and read only if regular."""

import json
import os
from pathlib import Path
from typing import Any

from prunus_runtime.atomic import read_file as read_file
from prunus_runtime.atomic import write_atomically as write_atomically

DEEPEST = 50
"""How deeply the values of a data file may be nested; ours go ten deep."""


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with the home folder for `~`; a `~name` without such a user stays as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def resolved(path: str | os.PathLike[str]) -> Path:
    """The absolute path with links followed; links that lead in a circle are not an error here."""
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


def write_json(path: str | os.PathLike[str], content: Any) -> Path:
    """Write plain data as JSON that people can read, atomically."""
    return write_atomically(path, json.dumps(content, indent=1) + "\n")
