"""Checkpoints: whole or refused; and the metrics beside them."""

import hashlib
import io
import os
import random
import warnings

import numpy as np
import pytest
import torch

from prunus import PrunusWarning
from prunus.randomness import random_state, restore_random_state, seed_everything
from prunus.training.checkpoint import CheckpointError, Checkpoints, decode, encode
from prunus.training.metrics import MetricsFile


def test_the_last_two_are_kept_and_the_newest_is_found(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c")
    assert checkpoints.latest() is None
    for stage, step in [(0, 5), (0, 1000), (1, 7)]:
        checkpoints.save({"at": (stage, step)}, stage, step)
    names = sorted(path.name for path in checkpoints.folder.iterdir())
    assert names == ["000-000001000.pt", "001-000000007.pt"]
    assert checkpoints.latest() == {"at": (1, 7)}


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "other"])
def test_a_damaged_one_is_reported_and_the_one_before_used(tmp_path, damage):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"weights": torch.arange(3)}, 0, 1)
    path = checkpoints.save({"weights": torch.arange(4)}, 0, 2)
    data = path.read_bytes()
    flipped = data[:-30] + bytes([data[-30] ^ 1]) + data[-29:]
    changed = {"cut": data[:-9], "flip": flipped, "empty": b"", "other": b"something else"}
    path.write_bytes(changed[damage])
    with pytest.warns(PrunusWarning, match=f"{path.name}.*using the one before it"):
        found = checkpoints.latest()
    assert torch.equal(found["weights"], torch.arange(3))


def test_no_good_checkpoint_left(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({}, 0, 1).write_bytes(b"")
    with pytest.warns(PrunusWarning):
        assert checkpoints.latest() is None


def test_new_checkpoints_stay_beside_damaged_ones_of_later_steps(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (100, 200):
        checkpoints.save({"step": step}, 0, step).write_bytes(b"damaged")
    with pytest.warns(PrunusWarning) as warned:
        assert checkpoints.latest() is None
    assert [str(warning.message).partition("; ")[2] for warning in warned] == [
        "using the one before it",
        "starting again",
    ]
    for step in (1, 2, 3):
        assert checkpoints.save({"step": step}, 0, step).exists()
    assert checkpoints.latest() == {"step": 3}
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        *("000-000000002.pt", "000-000000003.pt"),
        *("000-000000100.pt.unusable", "000-000000200.pt.unusable"),
    ]


def with_checksum(data: bytes) -> bytes:
    start, _ = encode({})
    return start[: -hashlib.sha256().digest_size] + hashlib.sha256(data).digest() + data


def saved(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


class Code:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"garbage", "something else than tensors"),
        (b"", "something else than tensors"),
        (saved({"step": Code()}), "something else than tensors"),
        (saved([1, 2]), "holds a list"),
        (saved({"other": 1}), "lacks step"),
        (saved({"step": {"deep": 1}}), "holds step={'deep': 1}"),
        (saved({"step": -1}), "holds step=-1"),
        (saved({"step": 1, "run": "another-run"}), "of another run, 'another-run'"),
    ],
)
def test_a_valid_checksum_over_something_else(tmp_path, capsys, data, message):
    checkpoints = Checkpoints(tmp_path, "this-run")
    checkpoints.save({"step": 1}, 0, 1)
    (tmp_path / "000-000000002.pt").write_bytes(with_checksum(data))
    with pytest.warns(PrunusWarning, match=f"{message}.*using the one before it"):
        assert checkpoints.latest(needs={"step": int}) == {"step": 1}
    assert capsys.readouterr().out == ""


def test_leftovers_of_a_killed_write_go(tmp_path):
    (tmp_path / ".000-000000001.pt.abc").write_bytes(b"half")
    (tmp_path / ".ipynb_checkpoints").mkdir()  # is nothing of ours
    assert Checkpoints(tmp_path).latest() is None
    assert [path.name for path in tmp_path.iterdir()] == [".ipynb_checkpoints"]


def test_a_pipe_is_not_waited_for(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"step": 1}, 0, 1)
    os.mkfifo(tmp_path / "000-000000002.pt")
    with pytest.warns(PrunusWarning, match=r"not a regular file.*using the one before it"):
        assert checkpoints.latest() == {"step": 1}


def test_errors_say_what_is_wrong():
    with pytest.raises(CheckpointError, match="checksum does not match"):
        decode(b"".join(encode({"a": 1}))[:-1])
    with pytest.raises(CheckpointError, match="this is not a checkpoint"):
        decode(b"")


def test_every_random_generator_comes_back():
    seed_everything(2**63 + 1)
    torch.rand(3), np.random.normal(), random.gauss(0, 1)  # leave half-used pairs behind
    state = decode(b"".join(encode(random_state())))

    def draw():
        numbers = [random.gauss(0, 1), np.random.normal(), np.random.rand(), torch.randn(1).item()]
        return numbers + torch.rand(2).tolist()

    first = draw()
    seed_everything(0)
    assert draw() != first
    restore_random_state(state)
    assert draw() == first


def test_metrics_are_cut_at_a_position(tmp_path):
    metrics = MetricsFile(tmp_path / "run" / "metrics.jsonl")
    assert metrics.position() == 0
    metrics.cut(0)
    metrics.add({"loss": 1.5})
    position = metrics.position()
    metrics.add({"loss": 0.1})
    metrics.path.open("a").write('{"half a li')
    metrics.cut(position)
    assert metrics.path.read_text() == '{"loss": 1.5}\n'
    metrics.path.unlink()
    with pytest.warns(PrunusWarning, match="lines are missing"):
        metrics.cut(position)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics.cut(0)
