"""`--target-speedup` and `report --speed`, with a clock of our own."""

import json
from pathlib import Path

import pytest
import yaml

from prunus.deployment import speed
from prunus.deployment.speed import CostModel
from prunus.runs.speed import RunSpeeds, Speed, read_speeds, write_speeds

TASK = [
    *("--task", "digits/digits_convnet", "--epochs", "2", "--batch-size", "25", "--threads", "1"),
    *("--set", "data.train_images=100", "--set", "engine.accelerator=cpu"),
]
COSTS = CostModel(
    batch=1, threads=1, engine="an engine", dense_seconds=8.0, points=((0.05, 1.0), (1.0, 10.5))
)


def never(*_, **__):
    raise AssertionError("not again")


@pytest.fixture
def clock(monkeypatch):
    """A calibration without a clock, and networks that are five times as fast as the dense one."""
    monkeypatch.setattr(speed, "calibrate", lambda *_: COSTS)
    monkeypatch.setattr(speed, "times", lambda *_: (1.0, {"deployed": 0.2}))
    return monkeypatch


def runs():
    return [path for path in Path("runs").iterdir() if path.is_dir()]


@pytest.mark.parametrize("command", ["prune", "search"])
def test_a_speedup_becomes_a_budget_and_stays_that(cli, clock, command):
    asked = (command, *TASK, "--target-speedup", "4", *(
        ("--rewind-epoch", "0") if command == "search" else ()))  # fmt: skip
    status, output, errors = cli(*asked)
    assert status == 0, errors
    assert "the dense network in an engine (batch of 1, threads: 1): 15" in output
    assert "Speed-up: predicted 4.0, measured 5.0 (batch of 1," in output
    [run] = runs()
    method = yaml.safe_load((run / "settings.yaml").read_text())["method"]
    assert method["target_macs"] == 0.15 and "speedup" not in (run / "settings.yaml").read_text()
    last = json.loads((run / "results.json").read_text())["stages"][-1]
    assert last["kept_macs"] == pytest.approx(0.15, abs=0.001)
    # On a busier machine the same command is the same run, and what was measured stays.
    clock.setattr(speed, "calibrate", never)
    clock.setattr(speed, "times", never)
    status, output, errors = cli(*asked, "--json")
    assert status == 0, errors
    assert runs() == [run]
    found = json.loads(output)["speedup"]
    assert (found["asked"], found["target_macs"], found["measured"]) == (4, 0.15, 5)
    assert found["predicted"] == pytest.approx(4)
    # The report says both.
    assert cli("report", "runs")[0] == 0
    assert "5 (5.0x, predicted 4.0x)" in Path("runs/report.html").read_text()


@pytest.mark.usefixtures("clock")
def test_what_cannot_be_had_is_refused_before_training(cli):
    status, _, errors = cli("prune", *TASK, "--target-speedup", "9")
    assert status == 2 and "Ask for 8 at most" in errors
    assert not Path("runs").exists()


@pytest.mark.usefixtures("clock")
def test_a_damaged_calibration(cli):
    assert cli("prune", *TASK, "--target-speedup", "4")[0] == 0
    [calibration] = Path("runs").glob("speedup-*.json")
    calibration.write_text("{")
    status, _, errors = cli("prune", *TASK, "--target-speedup", "2")
    assert status == 2 and "is damaged" in errors and str(calibration) in errors


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--target-macs", "0.1"], "are the same budget"),
        (["--method", "l0"], "needs a method that has a target_macs, and l0 has none"),
        (["--bisect", "--target-density", "0.1"], "leave out --target-speedup"),
        (["--batch", "0"], "both are above zero"),
    ],
)
def test_what_does_not_go_together(cli, clock, more, message):
    clock.setattr(speed, "calibrate", never)
    status, _, errors = cli("prune", *TASK, "--target-speedup", "4", *more)
    assert status == 2 and message in errors


@pytest.mark.filterwarnings("always::prunus.PrunusWarning")
def test_a_report_measures_each_network_once(cli, clock):
    assert cli("train", *TASK)[0] == 0
    assert cli("prune", *TASK, "--method", "gmp", "--target-density", "0.1")[0] == 0
    status, output, errors = cli("report", "runs", "--speed", "--svg", "--json", "found.json")
    assert status == 0, errors
    [pruned] = [run for run in runs() if "gmp" in run.name]
    assert output.count("Measured: ") == 1 and f"Measured: {pruned}, fine-tuning" in output
    found = read_speeds(pruned).stages["fine-tuning"]
    assert [(s.batch, s.deployed, s.dense) for s in found] == [(1, 5, 1), (128, 640, 128)]
    names = {path.name for path in Path("runs").glob("*.svg")}
    plot = "accuracy-digits-digits_convnet"
    assert names == {f"{plot}.svg", *(f"{plot}-images-a-second-batch-of-{b}.svg" for b in (1, 128))}
    page = Path("runs/report.html").read_text()
    assert "images a second, batch of 128" in page and "640 (5.0x)" in page
    networks = json.loads(Path("found.json").read_text())["subnetworks"]
    [network] = [one for one in networks if one["command"] == "prune"]
    assert [s["batch"] for s in network["speeds"]] == [1, 128]
    assert network["measured"]["fine-tuned"]["effective_density"] <= network["density"]
    clock.setattr(speed, "times", never)
    assert "Measured: " not in cli("report", "runs", "--speed")[1]
    assert "640 (5.0x)" in (cli("report", "found.json") and Path("report.html").read_text())
    assert "would disturb" in cli("report", "runs", "--speed", "--watch")[2]
    # What cannot be measured is left out, and named.
    (pruned / "speed.json").write_text("{")
    next((pruned / "tickets").glob("fine-tuning*")).unlink()
    status, _, errors = cli("report", "runs", "--speed")
    assert status == 0 and "fine-tuning, was not measured" in errors


def test_the_file_of_speeds(tmp_path):
    one = Speed(batch=1, threads=2, deployed=30, dense=10, engine="e", processor="p")
    other = one.model_copy(update={"batch": 16})
    speeds = RunSpeeds().with_speed("s", other).with_speed("s", one).with_speed("s", one)
    write_speeds(tmp_path, speeds)
    assert read_speeds(tmp_path) == speeds and speeds.stages["s"] == (one, other)
    assert speeds.of("s", 16) == other and speeds.of("s", 2) is None and speeds.of("t", 1) is None
    assert one.speedup == 3
    assert read_speeds(tmp_path / "none") == RunSpeeds()
