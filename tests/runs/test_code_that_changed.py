"""A task, network or method of the user that changed makes a new run; a finished run says so."""

import sys
from pathlib import Path

import pytest

from prunus.lookup import source_hash
from prunus.runs import resolve
from prunus.sweeps import Experiment
from prunus.sweeps.plan import make_plan
from prunus.sweeps.work import RunFailedError, run_one

OPTIONS = ["--epochs", 1, "--batch-size", 25, "--set", "data.train_images=50"]
TASK = """
from dataclasses import replace
from prunus.tasks import load_task
import sizes

def task(root, options):
    return replace(load_task("digits/digits_convnet", root, options), name="mine")

def network(**given):
    from mynets.small import small
    return small(sizes.WIDTH, **given)
"""
NETWORK = """
from torch import nn
from . import parts

def small(width, *, num_classes, image_size, channels):
    first = [nn.Flatten(), nn.Linear(64, width), parts.act()]
    return nn.Sequential(*first, nn.Linear(width, num_classes))
"""
FILES = {
    "mytask.py": TASK,
    "sizes.py": "WIDTH = 8\n",
    "unrelated.py": "x = 1\n",
    "mynets/__init__.py": "",
    "mynets/small.py": NETWORK,
    "mynets/parts.py": "from torch import nn\nact = nn.ReLU\n",
}


def forget() -> None:
    """As a new process does."""
    for name in ("mytask", "sizes", "unrelated", "mynets", "mynets.small", "mynets.parts"):
        sys.modules.pop(name, None)


@pytest.fixture
def mine(cli, monkeypatch, tmp_path, trust):
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    trust("mytask:task", "digits/mytask:network")
    forget()
    yield cli
    forget()


def folder_now() -> Path:
    forget()
    return resolve("train", {"task": "digits/mytask:network"})[0].folder


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("file", "makes_a_new_run"),
    [
        *[(name, True) for name in FILES if name != "unrelated.py"],
        ("unrelated.py", False),
        ("another.py", False),
    ],
)
def test_what_makes_a_new_run(file, makes_a_new_run):
    before = folder_now()
    assert folder_now() == before
    with Path(file).open("a") as changed:
        changed.write("# changed\n")
    assert (folder_now() != before) == makes_a_new_run


@pytest.mark.usefixtures("mine")
def test_other_tasks_of_the_same_process_change_nothing():
    before = folder_now()
    forget()
    import unrelated  # noqa: F401

    assert resolve("train", {"task": "digits/mytask:network"})[0].folder == before
    assert source_hash(["digits/mlp", "cs"]) == ""


@pytest.mark.usefixtures("mine")
def test_a_sweep_knows_no_transfer_to_code_that_changed():
    then = [{"retrain": "last", "task": "digits/mytask:network"}]
    data = {"name": "a", "tasks": "digits/digits_convnet", "dense": False}
    experiment = Experiment.parse({**data, "rows": [{"method": "cs", "then": then}]})

    def keys() -> list[str]:
        forget()
        return [run.key for run in make_plan(experiment, Path("runs"))]

    search, transfer = keys()
    assert keys() == [search, transfer]
    Path("sizes.py").write_text("WIDTH = 9\n")
    assert keys()[0] == search and keys()[1] != transfer


@pytest.mark.usefixtures("mine")
def test_a_worker_with_other_code_says_so():
    complete = resolve("train", {"task": "mytask:task"})[0].model_dump(mode="json")
    forget()
    Path("sizes.py").write_text("WIDTH = 9\n")
    with pytest.raises(RunFailedError, match="the code of mytask:task is not the one"):
        run_one(complete, trusted=["mytask:task"])


def test_a_finished_run_says_so_and_can_be_done_again(mine, tmp_path):
    command = ["train", "--task", "mytask:task", *OPTIONS]
    status, output, errors = mine(*command)
    assert status == 0 and "Finished on" not in output, errors
    [run] = (tmp_path / "runs").iterdir()
    results = (run / "results.json").read_text()
    status, output, _ = mine(*command)
    assert status == 0 and "Finished on 2" in output and "--fresh does it again" in output
    status, output, _ = mine(*command, "--fresh")
    assert status == 0 and "epoch 1/1" in output and "Finished on" not in output
    [old] = (tmp_path / "runs-old").iterdir()
    assert f"The run before is now runs-old/{old.name}" in output
    assert (old / "results.json").read_text() == (run / "results.json").read_text() == results
    forget()
    (tmp_path / "sizes.py").write_text("WIDTH = 9\n")
    status, output, _ = mine(*command)
    assert status == 0 and "epoch 1/1" in output
    assert len(list((tmp_path / "runs").iterdir())) == 2
