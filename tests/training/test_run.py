"""Runs: interrupted, damaged, diverged; and what a person sees of them."""

import io
import json
import os
import signal
import sys
import threading
import types

import pytest
import torch
from rich.console import Console

from prunus import PrunusWarning, SettingError
from prunus.training import Run, Stage
from prunus.training.folder_lock import BusyError
from prunus.training.health import DivergedError
from prunus.training.progress import RunProgress
from prunus.training.signals import StoppedError, StopRequests
from prunus.training.trackers import make_trackers
from support.small import spoil_loss


def silent(total=10):
    return RunProgress(total, console=Console(file=io.StringIO()))


def open_run(folder, trainer, **options):
    options = {"total_steps": 10, "progress": silent(), **options}
    return Run(folder, trainer.engine, **options)


def train(run, trainer):
    def note():
        line = {"epoch": trainer.epoch, "step": trainer.step, "loss": trainer.mean_loss()}
        run.note(line, line, f"epoch {trainer.epoch}")

    with run:
        number = run.restore(trainer.model, trainer.method)
        run.train(trainer, Stage(number, "round 1"), note)


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_the_step_and_writes(tmp_path, make, number, status):
    whole, first, second = make(), make(), make()
    train(open_run(tmp_path / "whole", whole), whole)
    step = first.method.step

    def kill_in_the_middle():
        step()
        if first.step == 6:  # the seventh is under way
            os.kill(os.getpid(), number)

    first.method.step = kill_in_the_middle
    handler = signal.getsignal(number)
    with pytest.raises(StoppedError, match=f"{number.name} after writing a checkpoint") as stopped:
        train(open_run(tmp_path / "run", first), first)
    assert stopped.value.status == status
    assert signal.getsignal(number) is handler
    assert first.step == 7
    assert (tmp_path / "run" / "checkpoints" / "000-000000007.pt").exists()

    progress = silent()
    train(open_run(tmp_path / "run", second, progress=progress), second)
    assert "resuming round 1 after step 7 of 10" in progress.console.file.getvalue()
    assert lines(tmp_path / "run") == lines(tmp_path / "whole")
    for ours, theirs in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_second_ctrl_c_is_obeyed():
    with StopRequests() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_threads_leave_signals_alone():
    before = signal.getsignal(signal.SIGTERM)

    def enter():
        with StopRequests() as stop:
            seen.append((stop.received, signal.getsignal(signal.SIGTERM)))

    seen = []
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(timeout=60)
    assert seen == [(0, before)]


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(tmp_path, make):
    whole, first, second = make(), make(), make()
    train(open_run(tmp_path / "whole", whole), whole)
    train(open_run(tmp_path / "run", first, checkpoint_every=4), first)
    newest = tmp_path / "run" / "checkpoints" / "000-000000010.pt"
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(PrunusWarning, match="000-000000010.pt: the checkpoint is damaged"):
        train(open_run(tmp_path / "run", second), second)
    assert lines(tmp_path / "run") == lines(tmp_path / "whole")
    for ours, theirs in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_bad_weights_are_never_written(tmp_path, make):
    trainer = make()
    step = trainer.method.step

    def break_weights():
        step()
        if trainer.step == 9:  # the last step: no other loss would show it
            with torch.no_grad():
                trainer.model[4].bias.fill_(torch.nan)

    trainer.method.step = break_weights
    with pytest.raises(
        DivergedError,
        match=r"NaN or infinity after step 10, though the loss was finite: .*only 4\.bias is bad.*"
        r"checkpoint: .*/000-000000005\.pt",
    ):
        train(open_run(tmp_path, trainer), trainer)
    names = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert names == ["000-000000005.pt"], "the last good one"


def test_what_another_process_found_stops_this_one_too(tmp_path, make):
    trainer = make()
    shared = []

    def gather(value):
        shared.append(value)
        return [value, "the buffer 1.running_var is NaN"]

    trainer.engine.gather = gather
    with pytest.raises(DivergedError, match=r"after step 5, .*: the buffer 1\.running_var is NaN"):
        train(open_run(tmp_path, trainer), trainer)
    assert shared == [None], "the first that it shared is that its own model is well"
    assert not list(tmp_path.glob("checkpoints/*"))


def test_a_bad_loss_between_two_meetings_is_told_at_the_checkpoint(tmp_path, make, monkeypatch):
    trainer = make()
    trainer.engine.meets_after = lambda step: step % 10 == 0
    spoil_loss(trainer, monkeypatch, at_step=4)
    with pytest.raises(
        DivergedError,
        match=r"the loss is not finite .* in step 4, noticed in step 5: .*too late to tell which",
    ):
        train(open_run(tmp_path, trainer), trainer)


def test_a_run_that_cannot_be_entered_leaves_no_lock(tmp_path, make, monkeypatch):
    trainer = make()
    broken = open_run(tmp_path, trainer)
    monkeypatch.setattr(broken._checkpoints, "latest", None)
    with pytest.raises(TypeError):
        broken.__enter__()
    with open_run(tmp_path, trainer):
        pass


def test_one_process_at_a_time(tmp_path, make):
    trainer = make()
    with (
        open_run(tmp_path, trainer),
        pytest.raises(BusyError, match=f"process {os.getpid()} is at work in {tmp_path}"),
        open_run(tmp_path, trainer),
    ):
        pass
    train(open_run(tmp_path, trainer), trainer)


# What a person sees


def test_plain_lines_with_an_eta(tmp_path, make):
    trainer, progress = make(), silent()
    train(open_run(tmp_path, trainer, progress=progress), trainer)
    first, second = progress.console.file.getvalue().splitlines()
    assert first.startswith("epoch 1  ETA 0:00:") and second.startswith("epoch 2  ETA 0:00:")


def test_a_bar_on_a_terminal():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with RunProgress(10, console=console) as progress:
        progress.begin_at(4)
        for _ in range(6):
            progress.advance("round 3")
        progress.say_with_eta("a line")
    text = console.file.getvalue()
    assert "100%" in text and "round 3" in text and "ETA" in text
    assert "a line" in text and "a line  ETA" not in text


# Trackers


def test_tensorboard(tmp_path):
    [tracker] = make_trackers(["tensorboard"], tmp_path)
    tracker.log_hyperparams({"recipe.lr": 0.1})
    tracker.log_metrics({"loss": 0.5}, step=1)
    tracker.finalize("success")
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_a_missing_tracker_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SettingError, match=r"trackers=wandb.*pip install .*\[trackers\]"):
        make_trackers(["wandb"], tmp_path)


class Recorder:
    """Stands in for a package and remembers the calls."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return None if name == "active_run" and len(self.calls) == 1 else self

        return call


def test_wandb_and_mlflow_get_metrics_and_settings(tmp_path, monkeypatch):
    for name in ("wandb", "mlflow"):
        package = Recorder()
        package.config = package
        module = types.ModuleType(name)
        module.__getattr__ = lambda attribute, package=package: getattr(package, attribute)
        monkeypatch.setitem(sys.modules, name, module)
        [tracker] = make_trackers([name], tmp_path / "run")
        tracker.log_hyperparams({"seed": 1})
        tracker.log_metrics({"loss": 0.5}, step=3)
        called = {call: (args, kwargs) for call, args, kwargs in package.calls}
        assert tracker.name == name and tracker.version == "run"
        if name == "wandb":
            assert called["init"][1]["id"] == "run"
            assert called["log"] == (({"loss": 0.5},), {"step": 3})
            assert called["update"][0] == ({"seed": 1},)
        else:
            assert called["start_run"][1] == {"run_name": "run"}
            assert called["log_metrics"] == (({"loss": 0.5},), {"step": 3})
            assert called["set_tags"][0] == ({"seed": 1},)


def test_metrics_reach_the_trackers(tmp_path, make):
    trainer = make()
    seen = []
    trainer.engine.fabric.log_dict = lambda metrics, step: seen.append((metrics, step))
    train(open_run(tmp_path, trainer), trainer)
    assert [step for _, step in seen] == [5, 10]
    assert seen[0][0]["epoch"] == 1 and "loss" in seen[0][0]
