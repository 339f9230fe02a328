"""Atomic writing: a reader sees the old file or the new one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from prunus.files import write_atomically
from prunus_runtime.atomic import _is_a_door


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"\x00\xff", b"\x00\xff"), ("märz\n", "märz\n".encode()), (b"", b"")],
    ids=["bytes", "text", "empty"],
)
def test_writes(tmp_path: Path, content: bytes | str, expected: bytes) -> None:
    path = write_atomically(str(tmp_path / "file"), content)
    assert path == tmp_path / "file"
    assert path.read_bytes() == expected


def test_creates_missing_folders(tmp_path: Path) -> None:
    assert write_atomically(tmp_path / "a" / "b" / "c", "x").read_text() == "x"


def test_overwrites_and_leaves_no_other_file(tmp_path: Path) -> None:
    for text in ("a longer first text", "second"):
        write_atomically(tmp_path / "file", text)
    assert (tmp_path / "file").read_text() == "second"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_has_the_mode_of_any_new_file(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        path = write_atomically(tmp_path / "file", "x")
        assert os.umask(umask) == umask, "the process's umask was changed"
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    path = write_atomically(tmp_path / "file", "old")
    monkeypatch.setattr(failing, fail)
    with pytest.raises(type(error)):
        write_atomically(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_the_folder_is_synchronised_after_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []

    def fsync(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        if synced[-1]:
            assert names(tmp_path) == ["file"], "renamed before"
            raise OSError("this file system cannot")

    monkeypatch.setattr("os.fsync", fsync)
    assert write_atomically(tmp_path / "file", "x").read_text() == "x"
    assert synced == [False, True]


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="file"):
        write_atomically(tmp_path / "file", "x")
    assert names(tmp_path) == ["file"]


def test_what_is_no_file_stays_what_it_is(tmp_path: Path) -> None:
    """As root, this would have taken /dev/null from the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        write_atomically(pipe, "a", b"b")
        assert reader.read() == b"ab"
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


@pytest.mark.skipif(not Path("/dev/stdout").is_symlink(), reason="no such link here")
def test_the_links_to_our_output_stay() -> None:
    """Not written to here: a failure would take the link from the machine."""
    assert _is_a_door(Path("/dev/stdout"))
