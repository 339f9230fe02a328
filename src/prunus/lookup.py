"""Finding things by name, with errors that tell a person what they probably meant."""

import importlib
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from prunus.errors import SettingError

_MOST_NAMES_LISTED = 20


def unknown(kind: str, name: str, known: Iterable[str]) -> SettingError:
    """The error for a `name` that is not among the `known` ones, with the nearest of them."""
    known = sorted(known)
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    listed = f" Known: {', '.join(known)}." if len(known) <= _MOST_NAMES_LISTED else ""
    return SettingError(f"there is no {kind} named {name!r}.{meant}{listed}")


def import_named(spec: str, kind: str = "function") -> Any:
    """The function or class that `package.module:name` names, also of a module in this folder."""
    module_name, _, name = spec.partition(":")
    _with_current_folder()
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SettingError(f"cannot import {module_name!r} for {spec!r}: {error}") from error
    except ValueError as error:
        raise SettingError(f"{spec!r} is not of the form 'package.module:{kind}'") from error
    found = getattr(module, name, None)
    if not callable(found):
        public = [name for name, value in vars(module).items() if callable(value)]
        raise unknown(f"{kind} in module {module_name!r}", name, public)
    return found


def _with_current_folder() -> None:
    """Let modules in the current folder be imported, as `python -m` does."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
