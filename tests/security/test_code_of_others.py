"""Files that name code: it is imported only if a person named it, or said that they trust the file.

`spy.py` writes down that it was imported or called; every test ends with looking at what it wrote.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import prunus
from prunus import Manifest, Mask, Ticket
from prunus.cli.deploy import _find
from prunus.lookup import names_of_code
from prunus.runs import resolve
from prunus.sweeps import run_sweep
from prunus.sweeps.experiment import read_experiment
from prunus.sweeps.work import RunFailedError, run_one
from prunus.tasks import load_task

SPY = """
from dataclasses import replace
from pathlib import Path
from prunus import MagnitudePruning
from prunus.tasks import load_task
from prunus.tasks.networks import NETWORKS

def note(what):
    with open(Path(__file__).with_name("noted"), "a") as file:
        file.write(what + "\\n")

note("imported")

def task(root, options):
    note("task")
    return replace(load_task("digits/digits_convnet", root, options), name="spy")

def network(**sizes):
    note("network")
    return NETWORKS["digits_convnet"](**sizes)

class Method(MagnitudePruning): ...
"""
SMALL = ["--epochs", 2, "--set", "data.train_images=50"]
TASKS = ["spy:task", "digits/spy:network"]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def spied(cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """The command line in a folder with `spy.py`, and a memory of its own."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delitem(sys.modules, "spy", raising=False)
    (tmp_path / "spy.py").write_text(SPY)
    yield cli
    sys.modules.pop("spy", None)


def noted() -> list[str]:
    return Path("noted").read_text().split() if Path("noted").exists() else []


def ticket_of(task: str) -> Path:
    manifest = Manifest(task=task, method="spy:Method")
    return Ticket(Mask({}), {"weight": torch.zeros(1)}, manifest).save("sent.safetensors")


def write(name: str, content: Any) -> Path:
    Path(name).write_text(yaml.safe_dump(content))
    return Path(name)


def experiment(**changes: Any) -> Path:
    content: dict[str, Any] = {
        "name": "sent",
        "tasks": ["digits/digits_convnet"],
        "dense": False,
        "settings": {"recipe": {"epochs": 2}, "data": {"train_images": 50}},
        "rows": [{"method": "mp", "command": "prune"}],
    }
    return write("sent.yaml", content | changes)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("command", ["retrain", "deploy", "inspect"])
def test_a_ticket_names_no_code(spied: Command, command: str, task: str) -> None:
    status, _, errors = spied(command, ticket_of(task))
    if command != "inspect":
        assert status == 2 and f"give --task {task} to use it" in errors
    assert noted() == []


def test_a_settings_file_gives_a_ticket_no_trust(spied: Command) -> None:
    config = write("mine.yaml", {"seed": 1})
    assert spied("retrain", ticket_of("spy:task"), "--config", config, "--trust")[0] == 2
    assert noted() == []


def test_a_ticket_with_a_name_that_is_code(spied: Command) -> None:
    ticket_of("spy:task").rename("spy:task")
    assert spied("retrain", "spy:task")[0] == 2
    assert noted() == []


EXPERIMENTS: dict[str, dict[str, Any]] = {
    "task": {"tasks": ["spy:task"]},
    "network": {"tasks": ["digits/spy:network"]},
    "method": {"rows": [{"method": "spy:Method"}]},
    "method in settings": {"rows": [{"settings": {"method": {"name": "spy:Method"}}}]},
    "method in a grid": {"rows": [{"grid": {"method.name": ["spy:Method"]}}]},
    "task of a re-training": {"rows": [{"method": "mp", "then": {"task": "spy:task"}}]},
    "stand-in": {"scales": {"small": {"stand_ins": {"digits/digits_convnet": "spy:task"}}}},
}


@pytest.mark.parametrize("changes", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_an_experiment_names_code_only_if_trusted(spied: Command, changes: dict[str, Any]) -> None:
    command = ["sweep", experiment(**changes), "--dry-run"]
    command += ["--scale", "small"] if "scales" in changes else []
    status, _, errors = spied(*command)
    assert status == 2 and "names code" in errors and noted() == []
    status, _, errors = spied(*command, "--trust")
    assert status == 0, errors
    assert "imported" in noted()


@pytest.mark.usefixtures("spied")
def test_trust_reaches_the_workers_of_a_sweep() -> None:
    changes = {"tasks": ["spy:task"], "rows": [{"method": "spy:Method", "command": "prune"}]}
    sweep = read_experiment(experiment(**changes))
    # Threads, like other processes and machines, know nothing of the trust in ours.
    with prunus.trusting("spy:task", "spy:Method"), ThreadPoolExecutor(1) as executor:
        [run] = run_sweep(sweep, Path("runs"), executor)
    assert run.status == "finished", run.error


@pytest.mark.parametrize("settings", [{"task": "spy:task"}, {"method": "spy:Method"}])
def test_settings_name_code_only_if_trusted(spied: Command, settings: dict[str, Any]) -> None:
    file = write("sent.yaml", {"task": "digits/digits_convnet", **settings})
    command = ["prune", "--config", file, *SMALL]
    status, _, errors = spied(*command)
    assert status == 2 and "names code" in errors and noted() == []
    status, _, errors = spied(*command, "--trust")
    assert status == 0, errors


@pytest.mark.parametrize("task", TASKS)
def test_what_is_typed_is_used_and_resumed(spied: Command, task: str) -> None:
    train = ["train", "--task", task, *SMALL]
    for _ in range(2):
        status, output, errors = spied(*train)
        assert status == 0, errors
    assert "training" in output
    [run] = Path("runs").iterdir()
    # Its own run folder names the code, and still only the person may.
    assert spied("deploy", run)[0] == 2
    assert _find(run, task, data=None).task.build()
    assert spied("train", "--config", run / "settings.yaml")[0] == 2
    assert spied("train", "--config", run / "settings.yaml", "--task", task)[0] == 0


def test_what_is_typed_with_set(spied: Command) -> None:
    typed = ["--set", "task=spy:task", "--set", "method.name=spy:Method"]
    assert spied("prune", *typed, *SMALL)[0] == 0


@pytest.mark.usefixtures("spied")
def test_the_library_takes_no_names_from_files_either() -> None:
    given = {"task": "digits/digits_convnet", "recipe": {"epochs": 1}}
    settings, _ = resolve("prune", {**given, "method": "mp"})
    complete = settings.model_dump(mode="json")
    with pytest.raises(RunFailedError, match="names code"):
        run_one({**complete, "task": "spy:task"})
    with pytest.raises(prunus.SettingError, match="names code"):
        resolve("retrain", {"ticket": str(ticket_of("spy:task"))})
    for load in (load_task, prunus.find_method):
        with pytest.raises(prunus.SettingError, match="names code"):
            load("spy:task")
    assert noted() == []
    with prunus.trusting("digits/spy:network"):
        task = load_task("digits/spy:network")
    task.build()
    assert noted() == ["imported", "network"]


def test_an_answer_on_a_terminal_is_remembered(
    spied: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["sweep", experiment(tasks=["spy:task"], settings={"data_root": "/"}), "--dry-run"]

    def answer(text: str) -> tuple[int, str, str]:
        terminal = Terminal(text)
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        return spied(*command)

    status, _, errors = answer("n\n")
    assert status == 2 and "spy:task" in errors and "data_root='/'" in errors and noted() == []
    assert answer("y\n")[0] == 0 and "task" in noted()
    status, _, errors = answer("")
    assert status == 0 and "trust" not in errors
    experiment(tasks=["spy:task"], seeds=[1])  # another content
    assert answer("n\n")[0] == 2
    experiment(tasks=["spy:task"], settings={"data_root": "/"})
    Path("elsewhere").mkdir()
    command[1] = Path("sent.yaml").rename("elsewhere/sent.yaml")
    assert answer("n\n")[0] == 2  # the same content, of another folder


class Terminal:
    def __init__(self, text: str) -> None:
        self._text = text

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self._text


def test_our_own_experiments_import_nothing_from_any_folder(spied: Command) -> None:
    Path("experiments").mkdir()
    Path("experiments/budget_designs.py").write_text("import spy\n")
    status, _, errors = spied("sweep", "budget", "--scale", "smoke", "--dry-run")
    assert status == 2 and "names code" in errors and noted() == []


def test_names_of_code() -> None:
    content = {
        "tasks": {"digits/a.b:c": {}, "digits/mlp": {}},
        "at": "12:30",
        "description": "see a:b",
        "deep": [[("x:y",)]],
        "address": "tcp://host:80",
    }
    assert names_of_code(content) == {"digits/a.b:c", "x:y"}
