"""Sweeps in worker processes, and what happens when these or the sweep itself are killed."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from prunus.cli import main
from prunus.sweeps import LocalExecutor, run_sweep
from prunus.training.signals import StoppedError
from support.processes import SECONDS, started, wait_until
from support.sweeping import SMALL, TWELVE, Here, content, experiment, long_runs

LONG = {
    "row": "long",
    "command": "train",
    "settings": {"recipe": {**SMALL["recipe"], "epochs": 40}},
}


def under_way(folder):
    """The process at work on the first long run that has trained an epoch and is not finished."""
    for metrics in sorted(Path(folder).glob("*-train-*/metrics.jsonl")):
        run = metrics.parent
        done = (run / "results.json").exists()
        if not done and len(metrics.read_text().splitlines()) > 2:
            return int((run / ".lock").read_text())
    return None


def when_under_way(folder, act):
    """Call `act` with that process, from a thread."""

    def wait():
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            process = under_way(folder)
            if process:
                act(process)
                return
            time.sleep(0.005)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_two_workers_one_of_them_killed_find_what_one_finds(tmp_path):
    sweep = experiment(rows=[LONG, *TWELVE["rows"]])
    run_sweep(sweep, tmp_path / "one", Here())
    killed = []

    def kill(process):
        os.kill(process, signal.SIGKILL)
        killed.append(process)

    with LocalExecutor(2, gpus=[], logs=tmp_path / "logs") as executor:
        thread = when_under_way(tmp_path / "two", kill)
        runs = run_sweep(sweep, tmp_path / "two", executor)
        thread.join(SECONDS)
    assert [run.status for run in runs] == ["finished"] * 13
    assert len(killed) == 1 and killed[0] != os.getpid()
    one = content(tmp_path / "one")
    assert one == content(tmp_path / "two") and len(one) > 3 * 13


def test_ctrl_c_leaves_checkpoints_and_the_sweep_resumes(tmp_path):
    sweep = experiment(long_runs(seeds=[0]))
    with LocalExecutor(1, gpus=[]) as executor, pytest.raises(StoppedError, match="SIGINT"):
        thread = when_under_way(tmp_path / "two", lambda _: os.kill(os.getpid(), signal.SIGINT))
        try:
            run_sweep(sweep, tmp_path / "two", executor)
        finally:
            executor.stop()
            thread.join(SECONDS)
    state = json.loads((tmp_path / "two" / "sweep.json").read_text())
    assert [run["status"] for run in state["runs"]] == ["pending"]
    checkpoints = max(tmp_path.glob("two/*/checkpoints/*.pt"), default=None)
    assert checkpoints is not None
    run_sweep(sweep, tmp_path / "one", Here())
    run_sweep(sweep, tmp_path / "two", Here())
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_sigkill_of_the_sweep_and_the_same_command(tmp_path, monkeypatch, capsys):
    file, out = tmp_path / "long.yaml", tmp_path / "killed"
    file.write_text(yaml.safe_dump(long_runs()))
    command = ["sweep", str(file), "--workers", "1", "--out", str(out)]
    with started("-m", "prunus", *command) as process:
        wait_until(lambda: list(out.glob("*/results.json")) and under_way(out), process)
        worker = under_way(out)
        process.kill()  # the sweep alone, not its worker
        process.wait(SECONDS)
        [finished] = out.glob("*/results.json")
        before = finished.stat().st_mtime_ns
        # At once, while its worker may still be writing.
        monkeypatch.setattr(sys, "argv", ["prunus", *command])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        deadline = time.monotonic() + SECONDS
        while Path(f"/proc/{worker}").exists():
            assert time.monotonic() < deadline, "the worker lives on"
            time.sleep(0.05)
    output = capsys.readouterr().out
    assert "2 of 2 runs are finished" in output
    assert output.count("kept 100.00%") == 1, "only the run that was under way"
    assert finished.stat().st_mtime_ns == before
    run_sweep(experiment(long_runs()), tmp_path / "whole", Here())
    assert content(out) == content(tmp_path / "whole")
