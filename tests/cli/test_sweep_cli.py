"""`prunus sweep`, as a person types it; the runs are done in this process."""

from pathlib import Path

import pytest
import yaml

from support.sweeping import SMALL, TASK, Here

ROWS = [{"method": "cs", "grid": {"method.mask_init": [0.0]}, "then": "retrain"}]
EXPERIMENT = {
    "name": "mine",
    "tasks": TASK,
    "settings": SMALL,
    "rows": ROWS,
    "scales": {"smoke": {"settings": {"rounds": 1}}},
}


@pytest.fixture
def cli(prunus_command, monkeypatch, tmp_path):
    """Runs `prunus sweep` with an experiment; returns status, output and errors."""
    monkeypatch.chdir(tmp_path)
    executor = Here()
    monkeypatch.setattr("prunus.sweeps.LocalExecutor", lambda *_, **__: executor)

    def run(*arguments, **changes):
        Path("mine.yaml").write_text(yaml.safe_dump({**EXPERIMENT, **changes}))
        return prunus_command("sweep", "mine.yaml", *arguments)

    run.executor = executor
    return run


def test_dry_run_then_run_then_again(cli):
    status, output, _ = cli("--scale", "smoke", "--dry-run")
    assert status == 0 and "3 runs, 0 of them finished." in output
    assert f"{TASK} cs mask_init=0.0 round 1 re-trained seed 0       2  pending" in output
    assert not Path("runs").exists() and not cli.executor.calls
    status, output, _ = cli("--scale", "smoke")
    assert status == 0 and "3 of 3 runs are finished.\nSweep: runs/mine-smoke" in output
    assert f"[1/3] {TASK} dense seed 0: kept 100.00%, validation " in output
    assert "3 runs, 3 of them finished." in cli("--scale", "smoke", "--dry-run")[1]
    cli.executor.calls.clear()
    status, output, _ = cli("--scale", "smoke")
    assert status == 0 and not cli.executor.calls and "3 of 3" in output


def test_failed_runs_give_status_1_until_they_are_retried(cli):
    # A rate at which nothing is a number any more, which only the run itself can find out.
    settings = {**SMALL, "recipe": {**SMALL["recipe"], "lr": 1e30}, "rounds": 1}
    status, output, errors = cli("--out", "there", settings=settings, dense=False)
    assert status == 1 and "0 of 2 runs are finished.\nSweep: there" in output
    assert errors.startswith(
        "prunus: 1 of 2 runs failed, and 1 wait. The same command with --retry"
    )
    assert f"\n  {TASK} cs mask_init=0.0 seed 0: " in errors and "Traceback" not in errors
    cli.executor.calls.clear()
    assert cli("--out", "there", settings=settings, dense=False)[0] == 1
    assert not cli.executor.calls
    assert cli("--out", "there", "--retry", settings=settings, dense=False)[0] == 1
    assert len(cli.executor.calls) == 1


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (["--scale", "smok"], {}, "Did you mean 'smoke'?"),
        (["--scale", "nope"], {"scales": {}}, "no scale named 'nope', nor any other"),
        ([], {"row": ROWS}, "mine.yaml: there is no setting named 'row'. Did you mean 'rows'?"),
        (["--cluster", "tcp://h:1", "--workers", "2"], {}, "--workers are processes on this"),
    ],
)
def test_errors_are_messages(cli, arguments, changes, message):
    status, _, errors = cli(*arguments, **changes)
    assert status == 2 and errors.startswith("prunus: ") and message in errors


def test_an_experiment_of_prunus_beside_a_folder_of_its_name(prunus_command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()
    status, output, errors = prunus_command("sweep", "demo", "--scale", "smoke", "--dry-run")
    assert status == 0 and "0 of them finished" in output, errors
    status, _, errors = prunus_command("sweep", "comparisn")
    assert (
        status == 2
        and "no experiment or file named 'comparisn'. Did you mean 'comparison'?" in errors
    )
