"""Writes docs/licences.md: the packages of the locks, with their versions and licences."""

from __future__ import annotations

import re
from importlib.metadata import PackageMetadata, metadata
from pathlib import Path

from packaging.requirements import Requirement

from prunus.files import write_atomically

ROOT = Path(__file__).parent.parent
HEAD = """# Licences of dependencies

Prunus is under the [Apache 2.0](https://www.apache.org/licenses/LICENSE-2.0) licence. These are the
packages that `make demo` and `make test` install, with the licences that they state themselves.
`make sbom` writes this page, and `sbom.json`, the same as CycloneDX.

| package | version | licence | for |
| --- | --- | --- | --- |
"""


def licence(about: PackageMetadata) -> str:
    """As the package states it: an SPDX expression, else its classifiers, else its own words."""
    classifiers = [
        classifier.rpartition(" :: ")[2]
        for classifier in about.get_all("Classifier") or []
        if classifier.startswith("License ::")
    ]
    words = (about.get("License") or "").strip().splitlines() or ["not stated"]
    return about.get("License-Expression") or ", ".join(classifiers) or words[0]


def locked(extra: str) -> dict[str, Requirement]:
    """Name -> requirement of a lock, and torch."""
    lock = (ROOT / "locks" / f"{extra}.txt").read_text()
    pins = re.findall(r"^(\S+==\S+)", lock, re.M)
    torch = re.findall(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.M)
    return {pin.name: pin for pin in map(Requirement, [*pins, *torch])}


def page() -> str:
    demo = locked("demo")
    lines = [
        f"| {name} | {str(pin.specifier).removeprefix('==')} | {licence(metadata(name))} "
        f"| {'demo, test' if name in demo else 'test'} |\n"
        for name, pin in sorted(locked("dev").items())
    ]
    return HEAD + "".join(lines)


if __name__ == "__main__":
    print(f"Written: {write_atomically(ROOT / 'docs/licences.md', page())}")
