"""The kept corpus is read as it should be, and so are mutations of it; `make fuzz` does more."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import fuzz

FILES = sorted(path for path in fuzz.CORPUS.iterdir() if path.suffix in fuzz.KINDS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_corpus(path: Path) -> None:
    assert fuzz.problem(path, fuzz.peak() + fuzz.MEGABYTES) is None


def test_mutations(tmp_path: Path) -> None:
    number, found = fuzz.fuzz(seconds=120, most=400, seed=1, keep=tmp_path)
    assert number == 400 and found == []


def test_a_reader_that_falls_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def falls(_: Path) -> None:
        raise KeyError("tensors")

    monkeypatch.setitem(fuzz.KINDS, ".prunus", (fuzz.mutated_deployed, falls))
    _, found = fuzz.fuzz(seconds=60, most=20, seed=1, keep=tmp_path)
    assert found
    assert all("KeyError: 'tensors'" in line for line in found)
    assert len(list(tmp_path.glob("found-*.prunus"))) == len(found)
