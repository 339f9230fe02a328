"""What the commands of the README install is pinned, with hashes, and its licences are listed."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT, RUNTIME = (
    tomllib.loads((ROOT / place / "pyproject.toml").read_text())["project"]
    for place in (".", "runtime")
)
EXTRAS = ("demo", "dev", "dist", "docs")


def pinned(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.M))


def wanted(requirements: list[str]) -> list[Requirement]:
    """What is asked for, with Prunus, its runtime and their extras replaced by what these need."""
    found = []
    for requirement in map(Requirement, requirements):
        for project in (PROJECT, RUNTIME):
            if requirement.name == project["name"]:
                found += wanted(project["dependencies"])
                for extra in requirement.extras:
                    found += wanted(project["optional-dependencies"][extra])
                break
        else:
            found.append(requirement)
    return found


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_lock_has_all_that_its_extra_asks_for(extra: str) -> None:
    text = (ROOT / "locks" / f"{extra}.txt").read_text()
    chosen = pinned((ROOT / "constraints.txt").read_text())
    versions = {**pinned(text), "torch": chosen["torch"]}  # a local file, on our machines
    for requirement in wanted([f"prunus[{extra}]", "hatchling"]):
        name = canonicalize_name(requirement.name)
        assert requirement.specifier.contains(versions[name]), f"{name}: run make lock"
        assert versions[name] == chosen.get(name, versions[name]), f"{name}: run make lock"
    for package in re.split(r"\n(?=\w)", text.strip())[1:]:
        assert "--hash=sha256:" in package, package


def test_make_installs_nothing_without_a_hash() -> None:
    installs = re.findall(r"^\t\$\(PIP\) --no-deps (.+)$", (ROOT / "Makefile").read_text(), re.M)
    *others, of_the_lock, ours = installs
    assert others == ["-c constraints.txt torch"], "a local file, on our machines"
    assert of_the_lock == "--require-hashes -r $<"
    assert ours == "--no-build-isolation -e runtime -e ."


def test_the_licences_of_the_lock_are_listed() -> None:
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| (.+) \| .+ \|$", (ROOT / "docs/licences.md").read_text(), re.M
    )
    listed = {name: version for name, version, _ in rows[1:]}
    locked = pinned((ROOT / "locks/dev.txt").read_text())
    assert listed.items() >= locked.items(), "run make sbom"
    assert not [name for name, _, licence in rows if "not stated" in licence]
