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
from pathlib import Path
from types import ModuleType
from typing import Any

from prunus.errors import SettingError

_MOST_NAMES_LISTED = 20
_CODE = re.compile(r"([\w.-]+/)?[^\W\d][\w.]*:[^\W\d]\w*")
_BY_COMPUTED_NAMES = {"importlib", "pkgutil", "__import__"}
"""A source that uses one of these may import any module beside it."""
_SOURCES: dict[Path, tuple[object, bytes]] = {}
_TRUSTED: ContextVar[frozenset[str]] = ContextVar("trusted", default=frozenset())


class UntrustedError(SettingError):
    """A name of code that comes from a file rather than from a person."""


def unknown(kind: str, name: str, known: Iterable[str]) -> SettingError:
    """The error for a `name` that is not among the `known` ones, with the nearest of them."""
    known = sorted(known)
    if not known:
        return SettingError(f"there is no {kind} named {name!r}, nor any other")
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    listed = f" Known: {', '.join(known)}." if len(known) <= _MOST_NAMES_LISTED else ""
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
    if it is in none, from its folder. The source is that of the time when the module was imported
    (again), or else first looked at, because Python does not notice later changes either.
    """
    files: dict[str, bytes] = {}
    for name in names:
        if ":" in name:
            import_named(_spec(name), option=f"--task {name}")
            files |= _source_of(sys.modules[_spec(name).partition(":")[0]])
    if not files:
        return ""
    parts = (f"{name}\n{len(source)}\n".encode() + source for name, source in sorted(files.items()))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _source_of(module: ModuleType) -> dict[str, bytes]:
    path = Path(getattr(module, "__file__", None) or "")
    if not path.is_file():
        raise SettingError(
            f"{module.__name__!r} has no file, so nobody would notice that its code has changed: "
            "write it to a module, such as my_task.py, and name that"
        )
    name = module.__spec__.name if module.__spec__ else path.stem  # of `__main__`, its real one
    if path.suffix != ".py":  # compiled
        return {name: path.read_bytes()}
    files: dict[str, bytes] = {}
    depth = name.count(".") + (path.name == "__init__.py")
    for one in _with_parents(name):
        _collect_source(one, path.parents[depth], files, module.__spec__)
    return files


def _collect_source(module: str, folder: Path, files: dict[str, bytes], since: object) -> None:
    """Add the source of a module below `folder`, and of what it imports from there."""
    path = folder.joinpath(*module.split("."))
    found = next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)
    if found is None or module in files:
        return
    files[module] = _read(module, found, since)
    package = module if found.name == "__init__.py" else module.rpartition(".")[0]
    installed = {"site-packages", "dist-packages"} & set(folder.parts)
    try:
        others = {*_imports(ast.parse(files[module]), package)}
    except (SyntaxError, ValueError, RecursionError):  # nobody has imported it yet
        return
    if others & _BY_COMPUTED_NAMES:
        others |= {*_modules(folder, module.partition(".")[0] if package else "")}
    for other in others:
        if not installed or other.partition(".")[0] == module.partition(".")[0]:
            _collect_source(other, folder, files, since)


def _read(module: str, path: Path, since: object) -> bytes:
    """The source of a module as Python knows it, whatever has become of the file since then.

    `since` stands for the import of the module that needs it, which may import it only later.
    """
    imported = getattr(sys.modules.get(module), "__spec__", since)  # `reload` makes a new one
    if path not in _SOURCES or _SOURCES[path][0] is not imported:
        _SOURCES[path] = imported, path.read_bytes()
    return _SOURCES[path][1]


def _modules(folder: Path, package: str) -> Iterator[str]:
    """All modules of a top-level package below `folder`; of none, all there and in packages."""
    tops = [package] if package else [path.parent.name for path in folder.glob("*/__init__.py")]
    paths = [] if package else [*folder.glob("*.py")]
    for path in (*paths, *(path for top in tops for path in (folder / top).rglob("*.py"))):
        yield ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")


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
        elif isinstance(node, ast.Name) and node.id == "__import__":
            yield node.id


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
