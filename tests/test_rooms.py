"""The order of rooms that CONTRIBUTING promises: each imports only from those above it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
ANYWHERE = {"prunus.__init__", "prunus.__main__"}
"""The package itself imports from all rooms."""


def rooms() -> list[str]:
    """The rooms in the order of CONTRIBUTING, as the names of modules."""
    listed = re.search(r"^```text\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S)
    assert listed
    inside = re.findall(r"^  (\w+)(?:\.py|/)\s", listed[1], re.M)
    assert listed[1].startswith("src/prunus_runtime/")
    return ["prunus_runtime", *(f"prunus.{name}" for name in inside)]


def room_of(module: str) -> str:
    """`prunus.gates.base` is in the room `prunus.gates`."""
    parts = module.split(".")
    return parts[0] if parts[0] == "prunus_runtime" else ".".join(parts[:2])


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and module of every import of ours in a file, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] in ("prunus", "prunus_runtime") and name != "prunus":
                yield node.lineno, name


def modules() -> list[Path]:
    found = [*(SRC / "prunus").rglob("*.py"), *(SRC / "prunus_runtime").rglob("*.py")]
    return sorted(found)


def test_the_list_names_every_room_once() -> None:
    there = {"prunus_runtime"}
    for path in (SRC / "prunus").iterdir():
        if path.suffix == ".py" or (path / "__init__.py").exists():
            there.add(f"prunus.{path.stem}")
    listed = rooms()
    assert sorted(listed) == sorted(there - ANYWHERE)


def test_every_room_imports_only_from_those_above_it() -> None:
    order = rooms()
    wrong = []
    for path in modules():
        module = ".".join(path.relative_to(SRC).with_suffix("").parts)
        for line, imported in imports(path) if module not in ANYWHERE else ():
            room = room_of(imported)  # otherwise a name of the package itself, such as prunus.Mask
            if room in order and order.index(room) > order.index(room_of(module)):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {imported}")
    assert not wrong, "\n".join(wrong)


def test_an_import_the_wrong_way_is_found(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("def f():\n    from prunus.cli import main\n")
    assert list(imports(path)) == [(2, "prunus.cli.main")]
    assert rooms().index("prunus.cli") > rooms().index("prunus.gates")
