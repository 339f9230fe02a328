"""SIGKILL in the middle of a training by others, which then goes on by its own means."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "killed_trainer.py"


@pytest.mark.parametrize(
    ("trainer", "checkpoint"),
    [("transformers", "checkpoint-9/trainer_state.json"), ("lightning", "checkpoints/last.ckpt")],
)
def test_a_killed_training_ends_with_the_same_bytes(tmp_path, trainer, checkpoint):
    pytest.importorskip(trainer)

    def start(name):
        command = [sys.executable, str(PROGRAM), trainer, "--out", str(tmp_path / name)]
        with (tmp_path / "log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def finish(process):
        assert process.wait(120) == 0, (tmp_path / "log").read_text()

    finish(start("whole"))
    process, deadline = start("killed"), time.monotonic() + 120
    while not (tmp_path / "killed" / checkpoint).exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    assert process.wait(10) == -signal.SIGKILL
    assert not (tmp_path / "killed" / "ticket.safetensors").exists()
    finish(start("killed"))
    whole, killed = (
        (tmp_path / n / "ticket.safetensors").read_bytes() for n in ("whole", "killed")
    )
    assert whole == killed
    if trainer == "transformers":
        whole, killed = (
            (tmp_path / n / "model.safetensors").read_bytes() for n in ("whole", "killed")
        )
        assert whole == killed
