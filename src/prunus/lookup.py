"""Finding things by name, with errors that tell a person what they probably meant."""

import importlib
from collections.abc import Callable, Iterable
from difflib import get_close_matches
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


def import_function(spec: str) -> Callable[..., Any]:
    """The function that `package.module:function` names."""
    module_name, _, function_name = spec.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SettingError(f"cannot import {module_name!r} for {spec!r}: {error}") from error
    except ValueError as error:
        raise SettingError(f"{spec!r} is not of the form 'package.module:function'") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        public = [name for name, value in vars(module).items() if callable(value)]
        raise unknown(f"function in module {module_name!r}", function_name, public)
    return function  # type: ignore[no-any-return]
