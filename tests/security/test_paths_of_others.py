"""Paths in files of others: they stay below the folder of that file, unless a person says more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from prunus.sweeps import make_plan
from prunus.sweeps.experiment import read_experiment

SMALL = ["--epochs", 2, "--set", "data.train_images=50"]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that somebody sent, in the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = Path("sent")
    folder.mkdir()
    return folder


def write(content: Any) -> Path:
    file = Path("sent/sent.yaml")
    file.write_text(yaml.safe_dump(content))
    return file


def settings(**changes: Any) -> Path:
    return write({"task": "digits/digits_convnet", **changes})


def experiment(**changes: Any) -> Path:
    content: dict[str, Any] = {
        "name": "sent",
        "tasks": ["digits/digits_convnet"],
        "dense": False,
        "settings": {"recipe": {"epochs": 2}, "data": {"train_images": 50}},
        "rows": [{"method": "mp", "command": "prune"}],
    }
    return write(content | changes)


PATHS = ["/etc", "../other", "~/data", "sent/../other", "other"]


@pytest.mark.parametrize("path", PATHS)
def test_an_experiment_stays_in_its_folder(cli: Command, path: str) -> None:
    places: list[dict[str, Any]] = [
        {"settings": {"data_root": path}},
        {"tasks": {"digits/digits_convnet": {"data_root": path}}},
        {"rows": [{"method": "mp", "grid": {"data_root, recipe.lr": [[path, 0.1]]}}]},
        {"scales": {"small": {"settings": {"data_root": path}}}},
    ]
    for place in places:
        command = ["sweep", experiment(**place), "--dry-run"]
        status, _, errors = cli(*command)
        assert status == 2 and f"data_root={path!r} leads out of the folder of this file" in errors
        assert cli(*command, "--trust")[0] == 0
        assert cli(*command, "--data", "mine")[0] == 0


def test_the_folder_that_is_typed_is_that_of_every_run() -> None:
    rows = [{"method": "mp", "command": "prune", "settings": {"data_root": "theirs"}}]
    plan = make_plan(read_experiment(experiment(rows=rows)), Path("runs"), data=Path("mine"))
    assert {run.settings.data_root for run in plan} == {Path("mine").resolve()}


def test_settings_stay_in_their_folder(cli: Command, tmp_path: Path, sent: Path) -> None:
    paths = {"data_root": "mine", "out": "../runs", "ticket": "/ticket"}
    for setting, path in paths.items():
        status, _, errors = cli("train", "--config", settings(**{setting: path}), *SMALL)
        assert status == 2 and f"{setting}={path!r} leads out" in errors
    assert cli("train", "--config", settings(out="../x"), "--out", "runs", *SMALL)[0] == 0
    for path in ("sent/x", str(tmp_path / "sent" / "x"), "sent/../sent/x"):
        assert cli("train", "--config", settings(out=path), *SMALL)[0] == 0
    assert len(list((sent / "x").iterdir())) == 1


def test_the_defaults_are_no_paths_of_a_file(cli: Command, tmp_path: Path) -> None:
    for root, out in (("data", "runs"), ("./data", "runs/"), (f"{tmp_path}/data", "x/../runs")):
        assert cli("train", "--config", settings(data_root=root, out=out), *SMALL)[0] == 0
    [run] = Path("runs").iterdir()
    status, output, _ = cli("train", "--config", run / "settings.yaml")
    assert status == 0 and "Finished on" in output
    # The default of something else is one.
    assert cli("train", "--config", settings(data_root="runs"), *SMALL)[0] == 2


IMPOSSIBLE = [5, None, ["a"], {}, "a\0b", "~nobody-of-this-name/x"]


@pytest.mark.parametrize("path", IMPOSSIBLE)
def test_a_path_that_is_none(cli: Command, path: Any) -> None:
    task = "cifar10/resnet20"
    told = ("data_root", "looked at")
    file = experiment(tasks=task, settings={"data_root": path})
    status, _, errors = cli("sweep", file, "--dry-run", "--trust")
    assert status == 2 and any(words in errors for words in told)
    status, _, errors = cli("train", "--config", settings(task=task, data_root=path), "--trust")
    assert status == 2 and any(words in errors for words in told)


@pytest.mark.parametrize("name", [".", "..", "a/b"])
def test_the_name_of_an_experiment_is_no_path(cli: Command, name: str) -> None:
    status, _, errors = cli("sweep", experiment(name=name), "--dry-run")
    assert status == 2 and f"name={name!r}" in errors


def test_a_run_folder_stays_in_its_folder(cli: Command) -> None:
    assert cli("train", "--task", "digits/digits_convnet", *SMALL)[0] == 0
    [run] = Path("runs").iterdir()
    file = run / "settings.yaml"
    own = yaml.safe_load(file.read_text())
    for place in ("/etc", "mine", "runs"):
        file.write_text(yaml.safe_dump(own | {"data_root": place}))
        status, _, errors = cli("deploy", run)
        assert status == 2 and f"data_root={place!r} leads out" in errors
    file.write_text(yaml.safe_dump(own | {"data": {"train_images": "many"}}))
    assert "data.train_images='many'" in cli("deploy", run)[2]
    file.write_text(yaml.safe_dump(own))
    results = (run / "results.json").read_text()
    (run / "results.json").write_text(results.replace("tickets/", "../../tickets/"))
    status, _, errors = cli("deploy", run)
    assert status == 2 and "is in another folder" in errors
