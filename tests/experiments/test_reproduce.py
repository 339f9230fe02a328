"""`prunus reproduce`, as a person types it; the smoke scale of every experiment of the paper."""

import csv
import json
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path

import pytest

from prunus.runs import stages
from prunus.runs.settings import RetrainSettings
from prunus.sweeps.experiment import experiment_names, named_experiment


class Here(Executor):
    """Calls functions at once, in this process; counts them."""

    calls = 0

    def submit(self, fn, /, *args, **kwargs):
        self.calls += 1
        future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shared, so that no experiment is run twice."""
    return tmp_path_factory.mktemp("reproduced")


@pytest.fixture
def cli(prunus_command, monkeypatch, folder):
    """Runs `prunus reproduce`; returns status, output and errors."""
    monkeypatch.chdir(folder)
    executor = Here()
    monkeypatch.setattr("prunus.sweeps.LocalExecutor", lambda *_, **__: executor)
    run = partial(prunus_command, "reproduce")
    run.executor = executor
    return run


OF_THE_PAPER = [name for name in experiment_names() if named_experiment(name).paper]


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_smoke_then_again(cli, name):
    out = Path(f"runs/{name}-smoke")
    status, output, errors = cli(name, "--scale", "smoke")
    assert status == 0, errors
    result = json.loads((out / f"{name}-smoke.json").read_text())
    for claim in result["claims"]:
        assert f"- {claim}" in output
    assert result["where"] in output and result["points"]
    compared = named_experiment(name).dense is not False
    assert bool(result["dense"]) == compared, "the networks that all others are measured by"
    assert all(0 < point["density"] <= 1 for point in result["points"])
    rows = list(csv.DictReader((out / f"{name}-smoke.csv").open()))
    assert len(rows) == len(result["pairs"])
    for row in result["pairs"]:
        if row["subnetwork"] in ("dense", "best performing", "nearest"):
            assert row["accuracy"] is not None
    assert (out / "report.html").is_file() and (out / "selections.csv").is_file()
    check = CHECKS.get(name)
    if check is not None:
        check(output)
        cli.executor.calls = 0
        (out / f"{name}-smoke.csv").unlink()
        assert cli(name, "--scale", "smoke")[1].endswith(output[output.index("Table: ") :])
        assert cli.executor.calls == 0 and (out / f"{name}-smoke.csv").is_file()


def paper_beside_ours(output):
    assert "(digits/digits_convnet stands in for the paper's cifar10/resnet20.)" in output
    [line] = [
        words
        for words in map(str.split, output.splitlines())
        if words[:4] == ["digits/digits_convnet", "best", "performing", "cs"] and "91.54" in words
    ]
    assert line[4:7] == ["5", "16.9", "91.54"] and len(line) == 11  # and four of ours


def blocks_of_two_layers(output):
    assert "removed %" in output and "block 2" in output and "block 3" not in output


CHECKS = {"table1": paper_beside_ours, "figure12": blocks_of_two_layers}


def test_list(cli):
    status, output, _ = cli()
    assert status == 0 and cli("--list")[1] == output
    assert "table2    One-shot pruning of VGG-16 and ResNet-20" in output
    assert any(line.split()[:4] == ["figure12", "5", "/", "10"] for line in output.splitlines())


def test_dry_run_and_errors(cli):
    output = cli("figure12", "--scale", "smoke", "--dry-run", "--out", "nothing")[1]
    assert "5 runs, 0 of them finished." in output and not Path("nothing").exists()
    assert "Did you mean 'table1'?" in cli("tabel1")[2]
    assert "use prunus sweep demo" in cli("demo", "--scale", "smoke")[2]
    assert "Did you mean 'smoke'?" in cli("table1", "--scale", "smok")[2]
    status, _, errors = cli("table1", "--data", "nowhere")
    assert status == 2 and "nowhere/cifar-10-batches-py" in errors


def test_what_failed_is_told_below_the_tables(cli, monkeypatch):
    def fail(_):
        raise RuntimeError("no such luck")

    monkeypatch.setitem(stages._COMMANDS, RetrainSettings, fail)
    status, output, errors = cli("figure12", "--scale", "smoke", "--out", "failed")
    assert status == 1 and "no such luck" in errors and "Beside the paper: Figure 12" in output
