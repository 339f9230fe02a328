"""A task, network or method of the user that changed makes a new run; a finished run says so."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from prunus import SettingError, trusting
from prunus.lookup import source_hash
from prunus.runs import resolve
from prunus.sweeps import Experiment
from prunus.sweeps.plan import make_plan
from prunus.sweeps.work import RunFailedError, run_one
from prunus.tasks import load_task

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
def test_a_change_while_the_data_are_read():
    before = folder_now()
    forget()

    def load(*args, **options):
        task = load_task(*args, **options)
        Path("sizes.py").write_text("WIDTH = 9\n")
        return task

    assert resolve("train", {"task": "digits/mytask:network"}, load=load)[0].folder == before


@pytest.mark.usefixtures("mine")
def test_other_tasks_of_the_same_process_change_nothing():
    before = folder_now()
    forget()
    import unrelated  # noqa: F401

    assert resolve("train", {"task": "digits/mytask:network"})[0].folder == before
    assert source_hash(["digits/mlp", "cs"]) == ""


FUNCTION = "def task(root, options): ...\n"
COMPUTED = """
import importlib
def task(root, options):
    return importlib.import_module(".." + "small", __package__)
"""
FOUND = """
import pkgutil
found = [info.module_finder.find_spec(info.name) for info in pkgutil.iter_modules(__path__)]
def task(root, options): ...
"""
BY_PATH = "def task(root, options): return __import__('othernets.' + 'small')\n"


OTHERS = ("othertask", "other", "othernets")


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    files = ["othertask.py", "other.py", "othernets/__init__.py", "othernets/small.py"]
    for path in map(Path, [*files, "othernets/deep/__init__.py", "othernets/deep/task.py"]):
        path.parent.mkdir(exist_ok=True)
        path.write_text(FUNCTION)
    yield
    forget_others()


def forget_others() -> None:
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name.partition(".")[0] in OTHERS]:
        del sys.modules[name]


def hash_now(name: str) -> str:
    """As a new process finds it."""
    forget_others()
    with trusting(name):
        return source_hash([name])


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize(
    ("name", "file", "source", "changed"),
    [
        ("othernets.deep.task", "othernets/deep/task.py", FUNCTION, "othernets/__init__.py"),
        ("othernets.deep.task", "othernets/deep/task.py", FUNCTION, "othernets/deep/__init__.py"),
        ("othernets.deep.task", "othernets/deep/task.py", COMPUTED, "othernets/small.py"),
        ("othernets", "othernets/__init__.py", FOUND, "othernets/small.py"),
        ("othertask", "othertask.py", BY_PATH, "othernets/small.py"),
        ("othertask", "othertask.py", BY_PATH, "other.py"),
    ],
)
def test_modules_that_no_import_statement_names(
    name: str, file: str, source: str, changed: str
) -> None:
    Path(file).write_text(source)
    before = hash_now(f"{name}:task")
    assert hash_now(f"{name}:task") == before
    Path(changed).write_text(Path(changed).read_text() + "# changed\n")
    assert hash_now(f"{name}:task") != before


@pytest.mark.usefixtures("others")
def test_code_that_is_loaded_again() -> None:
    """As in a notebook: the hash is that of the code which runs."""
    Path("othertask.py").write_text("import other\n" + FUNCTION)
    Path("other.py").write_text("a = 1\n")
    with trusting("othertask:task"):
        before = source_hash(["othertask:task"])
        Path("other.py").write_text("a = 22\n")
        assert source_hash(["othertask:task"]) == before
        importlib.reload(sys.modules["other"])
        assert source_hash(["othertask:task"]) != before


@pytest.mark.usefixtures("others")
def test_code_of_the_program_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    exec(FUNCTION, vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    with trusting("__main__:task"):
        with pytest.raises(SettingError, match="'__main__' has no file, so nobody would notice"):
            source_hash(["__main__:task"])  # as in a notebook, or python -c
        main.__file__ = "script.py"
        Path("script.py").write_text("import other\n" + FUNCTION)
        Path("other.py").touch()
        assert source_hash(["__main__:task"])


@pytest.mark.usefixtures("others")
def test_a_source_that_cannot_be_parsed() -> None:
    Path("othertask.py").write_text(
        "try:\n    import other\nexcept RecursionError: pass\n" + FUNCTION
    )
    Path("other.py").write_text("a = " + "+".join(["1"] * 30_000))
    assert hash_now("othertask:task")


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


@pytest.mark.filterwarnings("always::prunus.PrunusWarning")
def test_deploying_with_code_that_changed(mine):
    assert mine("train", "--task", "mytask:task", *OPTIONS)[0] == 0
    [run] = Path("runs").iterdir()
    deploy = ("deploy", run, "--task", "mytask:task")
    assert "has changed" not in mine(*deploy)[2]
    forget()
    Path("sizes.py").write_text("WIDTH = 9\n")
    status, _, errors = mine(*deploy)
    assert status == 0 and "the code of mytask:task is not the one that the run" in errors
