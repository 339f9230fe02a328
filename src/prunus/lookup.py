"""Finding things by name, with errors that tell a person what they probably meant.

A name such as `package.module:function` stands for code. Names also come from files, and a file may
come from anybody: so `import_named`, the only place that imports by name, takes no name but those
that a person gave (`trusting`).
"""

import ast
import hashlib
import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from prunus.errors import SettingError

_MOST_NAMES_LISTED = 20
_CODE = re.compile(r"([\w.-]+/)?[^\W\d][\w.]*:[^\W\d]\w*")
_TRUSTED: ContextVar[frozenset[str]] = ContextVar("trusted", default=frozenset())


class UntrustedError(SettingError):
    """A name of code that comes from a file rather than from a person."""


def unknown(kind: str, name: str, known: Iterable[str]) -> SettingError:
    """The error for a `name` that is not among the `known` ones, with the nearest of them."""
    known = sorted(known)
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    names = f"Known: {', '.join(known)}." if known else "None is known: leave it out."
    listed = f" {names}" if len(known) <= _MOST_NAMES_LISTED else ""
    return SettingError(f"there is no {kind} named {name!r}.{meant}{listed}")


def import_named(spec: str, kind: str = "function", *, option: str | None = None) -> Any:
    """The function or class that `package.module:name` names, also of a module in this folder.

    Only within `trusting(spec)`; the error says with which `option` a person names it.
    """
    if spec not in _TRUSTED.get():
        option = option or f"{'--method' if kind == 'class' else '--task'} {spec}"
        raise UntrustedError(
            f"{spec!r} names code, and no file may choose what runs here: give {option} to use it, "
            "or --trust for a settings or experiment file that you trust"
        )
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


@contextmanager
def trusting(*names: str) -> Iterator[None]:
    """Within this context, the code of these tasks and methods may be imported.

    The names are those that a person gave: on the command line, in a file of which they said that
    they trust it, or in Python. Names without code are always fine, and add nothing here.
    """
    before = _TRUSTED.set(_TRUSTED.get() | {_spec(name) for name in names if ":" in name})
    try:
        yield
    finally:
        _TRUSTED.reset(before)


def trusted_names() -> tuple[str, ...]:
    """What is trusted here, for a worker that does our work elsewhere."""
    return tuple(sorted(_TRUSTED.get()))


def names_of_code(data: Any) -> set[str]:
    """Every text in plain data, at any depth, that could be the name of code."""
    if isinstance(data, str):
        return {data} if _CODE.fullmatch(data) else set()
    if isinstance(data, Mapping):
        data = [*data, *data.values()]
    parts = data if isinstance(data, list | tuple) else ()
    return {name for part in parts for name in names_of_code(part)}


def source_hash(names: Iterable[str]) -> str:
    """A hash of the source of the code that these names stand for; empty if they name none.

    It covers the module itself and all that it imports from beside it: from its own package or,
    if it is in none, from its folder. The source is that of the time when it was first looked at,
    because Python does not notice later changes either.
    """
    files: dict[str, bytes] = {}
    for name in names:
        if ":" in name:
            import_named(_spec(name))
            files |= _source_of(sys.modules[_spec(name).partition(":")[0]])
    if not files:
        return ""
    parts = (f"{name}\n{len(source)}\n".encode() + source for name, source in sorted(files.items()))
    return hashlib.sha256(b"".join(parts)).hexdigest()


@cache
def _source_of(module: ModuleType) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    path = Path(module.__file__ or "")
    if path.suffix == ".py":
        depth = module.__name__.count(".") + (path.name == "__init__.py")
        _collect_source(module.__name__, path.parents[depth], files)
    return files


def _collect_source(module: str, folder: Path, files: dict[str, bytes]) -> None:
    """Add the source of a module below `folder`, and of what it imports from there."""
    path = folder.joinpath(*module.split("."))
    found = next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)
    if found is None or module in files:
        return
    files[module] = found.read_bytes()
    package = module if found.name == "__init__.py" else module.rpartition(".")[0]
    installed = {"site-packages", "dist-packages"} & set(folder.parts)
    try:
        tree = ast.parse(files[module])
    except SyntaxError:  # nobody has imported it yet
        return
    for other in _imports(tree, package):
        if not installed or other.partition(".")[0] == module.partition(".")[0]:
            _collect_source(other, folder, files)


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Every module that a source may import, anywhere in it; also what is no module after all."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield from _with_parents(f"{start}.{alias.name}")


def _with_parents(module: str) -> Iterator[str]:
    """`a`, `a.b` and `a.b.c`: importing the last one imports all."""
    parts = module.split(".")
    return (".".join(parts[:number]) for number in range(1, len(parts) + 1))


def _spec(name: str) -> str:
    """What is imported for a name: of the task `DATA/package.module:function`, the network."""
    data, slash, network = name.partition("/")
    return network if slash and ":" not in data else name


def _with_current_folder() -> None:
    """Let modules in the current folder be imported, as `python -m` does."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
