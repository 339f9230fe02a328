"""The two distributions: what they say of themselves, what is in them, and that they build."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from prunus import errors
from prunus.version import __version__

ROOT = Path(__file__).parents[1]
WITHOUT_COMPILER = {**os.environ, "CXX": "no-such-compiler"}
"""Compiling takes half a minute; `make dist` does it."""


def project(place: str) -> dict[str, object]:
    return tomllib.loads((ROOT / place / "pyproject.toml").read_text())["project"]


def build(source: Path, kind: str, out: Path) -> Path:
    """The file that hatchling makes of a folder, as `python -m build --no-isolation` does."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
    subprocess.run(
        command, cwd=source, env=WITHOUT_COMPILER, check=True, timeout=120, capture_output=True
    )
    [made] = out.iterdir()
    return made


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def content(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def package(name: str) -> set[str]:
    """The files of a package in the clone, but for what Python and the compiler made there."""
    source = ROOT / "src"
    return {
        path.relative_to(source).as_posix()
        for path in (source / name).rglob("*")
        if path.is_file() and path.suffix != ".pyc" and not path.name.startswith("_native.")
    }


@pytest.fixture(scope="module", params=[".", "runtime"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from the source distribution."""
    folder = tmp_path_factory.mktemp("built")
    source = build(ROOT / request.param, "sdist", folder / "sdist")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    return build(folder / source.name.removesuffix(".tar.gz"), "wheel", folder / "wheel")


def test_a_wheel_from_the_source_distribution(built: Path) -> None:
    about = metadata(built)
    assert about["Version"] == __version__
    name = about["Name"].replace("-", "_")
    assert built.name == f"{name}-{__version__}-py3-none-any.whl"
    experiments = {f"prunus/experiments/{path.name}" for path in (ROOT / "experiments").glob("*.*")}
    expected = package(name) | (experiments if name == "prunus" else set())
    assert content(built) == expected


def test_links_and_pictures_lead_somewhere_on_a_package_index(built: Path) -> None:
    about = metadata(built)
    text = about.get_payload()
    assert isinstance(text, str) and about["Description-Content-Type"] == "text/markdown"
    targets = re.findall(r"\]\(([^)\s]+)", text)
    assert targets and all(target.startswith(("https://", "#")) for target in targets)
    at = f"https://github.com/prunus-project/prunus/blob/v{__version__}/"
    for target in targets:
        if target.startswith(at):
            assert (ROOT / target.removeprefix(at).partition("#")[0]).is_file()


def test_the_runtime_needs_numpy_alone() -> None:
    assert project("runtime")["dependencies"] == ["numpy>=1.26"]


def test_both_have_one_version() -> None:
    """It is in src/prunus_runtime/version.py; change the dependency in pyproject.toml with it."""
    assert f"prunus-runtime=={__version__}" in project(".")["dependencies"]  # type: ignore[operator]


def test_the_repository_has_one_address() -> None:
    addresses = {project(place)["urls"]["Repository"] for place in (".", "runtime")}  # type: ignore[index]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert addresses == {citation["repository-code"]}


def test_how_extras_are_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert errors.how_to_install("demo") == f"pip install -e '{ROOT}[demo]'"
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages/prunus/errors.py"))
    assert errors.how_to_install("demo") == "pip install 'prunus[demo]'"


def test_dist_test_finds_the_commands_of_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from try_distributions import commands

    assert {"train", "search", "prune", "deploy", "report"} <= {c.split()[1] for c in commands()}
