"""Whole sweeps in this process: what is run, what is not, and what sweep.json says."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from prunus import SettingError
from prunus.report.records import read_runs
from prunus.runs import resolve
from prunus.runs.results import read_results
from prunus.sweeps import SweepFile, make_plan, run_one, run_sweep, survey
from prunus.sweeps.display import Display
from prunus.sweeps.work import RunFailedError
from prunus.training.folder_lock import BusyError, FolderGoneError, FolderLock
from support.sweeping import SMALL, TASK, TWELVE, Here, content, experiment

BROKEN = "mine_for_sweeps:task"


def state(folder):
    return json.loads((folder / "sweep.json").read_text())


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The sweep of twelve runs."""
    folder = tmp_path_factory.mktemp("sweep")
    runs = run_sweep(experiment(), folder, Here())
    return folder, runs


def test_sweep_json(done):
    folder, runs = done
    assert [run.status for run in runs] == ["finished"] * 12
    found = state(folder)
    assert (found["version"], found["name"], found["experiment"]["name"]) == (1, "twelve", "twelve")
    assert len({run["folder"] for run in found["runs"]}) == 12
    by_id = {run["id"]: run for run in found["runs"]}
    for run in found["runs"]:
        results = json.loads((folder / run["folder"] / "results.json").read_text())
        assert results["finished"] and results["command"] == run["command"]
        assert (results["task"], results["seed"]) == (run["task"], run["seed"])
        assert run["status"] == "finished" and run["error"] is None
        if run["command"] == "retrain":
            search = json.loads(
                (folder / by_id[run["needs"]]["folder"] / "results.json").read_text()
            )
            [stage] = [s for s in search["stages"] if s["stage"] == run["stage"]]
            assert results["stages"][0]["density"] == stage["density"]


def test_again_and_with_one_more_value(done):
    folder, _ = done
    before = content(folder)
    executor = Here()
    run_sweep(experiment(), folder, executor)
    assert executor.calls == []
    rows = [{**TWELVE["rows"][0], "grid": {"method.mask_init": [-0.02, 0.0, 0.02, 0.04]}}]
    more = experiment(rows=[*rows, TWELVE["rows"][1]])
    plan = make_plan(more, folder)
    assert sum(run.status == "finished" for run in survey(plan, {})) == 12
    run_sweep(more, folder, executor)
    commands = [given["command"] for given, *_ in executor.calls]
    assert commands == ["search", "retrain", "retrain"]
    after = content(folder)
    assert before.items() < after.items()
    assert len(state(folder)["runs"]) == 15
    assert all(run.status == "finished" for run in survey(plan, {}))


def test_rates_transfer_and_shared_runs(tmp_path, monkeypatch, trust):
    trust("parity_for_sweeps:task")
    monkeypatch.chdir(tmp_path)
    Path("parity_for_sweeps.py").write_text(
        "from dataclasses import replace\n"
        "from prunus.tasks import load_task\n"
        "def task(root, options):\n"
        f"    return replace(load_task({TASK!r}, root, options), name='parity')\n"
    )
    then = [{"retrain": "all"}, {"retrain": "last", "task": "parity_for_sweeps:task"}]
    cs = {"name": "cs", "mask_init": 0.0}
    rows = [
        {"method": cs, "then": then},
        {"row": "short", "method": cs, "settings": {"rounds": 1}, "then": "retrain"},
        {"method": "imp", "rates_of": "cs"},
    ]
    executor = Here()
    run_sweep(experiment(dense=False, rows=rows), tmp_path / "sweep", executor)
    runs = state(tmp_path / "sweep")["runs"]
    assert all(run["status"] == "finished" for run in runs)
    folders = {(run["row"], run["command"], run["stage"]): run["folder"] for run in runs}
    # A search of one round begins as one of two: its ticket is the same, and re-trained once.
    assert folders["short", "retrain", "round 1"] == folders["cs", "retrain", "round 1"]
    assert len(executor.calls) == len(set(folders.values())) == len(runs) - 1 == 6

    def stages(*which):
        path = tmp_path / "sweep" / folders[which] / "results.json"
        return json.loads(path.read_text())["stages"]

    found, copied = (
        [stage["density"] for stage in stages(row, "search", None)] for row in ("cs", "imp")
    )
    assert copied == pytest.approx(found, abs=1e-3)
    [transferred] = stages(f"cs from {TASK}", "retrain", "round 2")
    assert transferred["density"] == found[1]


def test_one_subnetwork_fine_tuned_and_retrained(tmp_path):
    rows = [{"command": "prune", "method": "cs", "then": "retrain"}]
    with ThreadPoolExecutor(2) as executor:  # anything with this interface will do
        runs = run_sweep(experiment(dense=False, rows=rows), tmp_path, executor)
    assert [run.status for run in runs] == ["finished"] * 2
    pruned, retrained = (read_results(run.folder) for run in runs)
    assert pruned.stages[1].stage == "fine-tuning"
    assert pruned.stages[1].layers == retrained.stages[0].layers
    assert retrained.epochs_before == 1, "from w^(k), not from the fine-tuned weights"
    [record] = read_runs(tmp_path).records
    assert set(record.measured) == {"searched", "fine-tuned", "re-trained"}


@pytest.fixture
def breakable(tmp_path, monkeypatch, trust):
    """A task that fails to build its network while a file is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("mine_for_sweeps.py").write_text(
        "from dataclasses import replace\n"
        "from pathlib import Path\n"
        "from prunus.tasks import load_task\n"
        "def task(root, options):\n"
        f"    whole = load_task({TASK!r}, root, options)\n"
        "    def build():\n"
        "        if Path('broken').exists():\n"
        "            raise KeyError('no such layer')\n"
        "        return whole.build()\n"
        "    return replace(whole, build=build)\n"
    )
    Path("broken").touch()
    trust(BROKEN)
    return tmp_path / "sweep"


def test_failures_are_noted_left_alone_and_retried(breakable, capsys):
    row = {**TWELVE["rows"][0], "grid": {"method.mask_init": [0.0]}}
    content = experiment(tasks=[BROKEN, TASK], rows=[row])
    executor = Here()
    runs = run_sweep(content, breakable, executor, display=Display())
    statuses = {(r.planned.task, r.planned.command): (r.status, r.error) for r in runs}
    assert statuses[TASK, "retrain"] == ("finished", None)
    status, error = statuses[BROKEN, "search"]
    assert status == "failed" and "KeyError: 'no such layer' (" in error
    assert "mine_for_sweeps.py, line 8)" in error
    assert statuses[BROKEN, "retrain"] == ("pending", None)
    assert "cs mask_init=0.0 seed 0: failed: KeyError" in capsys.readouterr().out
    Path("broken").unlink()
    executor.calls.clear()
    run_sweep(content, breakable, executor)
    assert executor.calls == [], "not without being asked"
    listed = survey(make_plan(content, breakable), SweepFile(breakable, {}).failures())
    assert sum(run.status == "failed" for run in listed) == 2, "the dense run and the search"
    runs = run_sweep(content, breakable, executor, retry=True)
    assert all(run.status == "finished" for run in runs)
    assert len(executor.calls) == 4, "only what had failed, and what needs it"
    assert not SweepFile(breakable, {}).failures()


def test_a_failure_before_the_run_begins(tmp_path):
    """Only a ticket tells that nothing is left to re-train."""
    then = {"retrain": "last", "settings": {"recipe": {"epochs": 1}}}
    sweep = experiment(dense=False, rows=[{"method": "cs", "then": then}])
    runs = run_sweep(sweep, tmp_path, Here())
    assert [run.status for run in runs] == ["finished", "failed"]
    assert "nothing is left to re-train" in runs[1].error


def test_a_ticket_that_is_gone(tmp_path):
    sweep = experiment(dense=False, rows=[{"method": "cs", "then": {"retrain": "last"}}])
    run_sweep(sweep, tmp_path, Here())
    [search] = tmp_path.glob("*-cs-search-*")
    (search / "tickets" / "round-2.safetensors").unlink()
    for runs in (run_sweep(sweep, tmp_path, Here()), survey(make_plan(sweep, tmp_path), {})):
        assert [run.status for run in runs] == ["finished", "failed"]
        assert "round-2.safetensors" in runs[1].error


def test_one_sweep_at_a_time(tmp_path):
    lock = FolderLock(tmp_path)
    lock.acquire()
    with pytest.raises(BusyError, match="is at work"):
        run_sweep(experiment(), tmp_path, Here())
    lock.release()


@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", '{"version": 1, "runs": [1]}'])
def test_a_damaged_state_is_reported(tmp_path, text):
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(SettingError, match=r"is not the state of a sweep .* delete it"):
        SweepFile(tmp_path, {}).failures()


def test_a_state_of_another_version_is_not_touched(tmp_path):
    (tmp_path / "sweep.json").write_text('{"version": 2, "runs": []}')
    with pytest.raises(SettingError, match="is of version 2, from another Prunus"):
        SweepFile(tmp_path, {}).failures()


def test_a_run_waits_for_another_at_work_on_it_but_not_for_ever(tmp_path, monkeypatch):
    given = {"task": TASK, **SMALL, "out": str(tmp_path)}
    given = {name: value for name, value in given.items() if not name.startswith("r")}
    settings, _ = resolve("train", {**given, "recipe": SMALL["recipe"]})
    lock = FolderLock(settings.folder)
    lock.acquire()
    monkeypatch.setattr("prunus.sweeps.work.PATIENCE", 0.5)
    with pytest.raises(RunFailedError, match="is at work in"):
        run_one(settings.model_dump(mode="json"))
    other = settings.model_copy(update={"data_fingerprint": "other"}).model_dump(mode="json")
    with pytest.raises(RunFailedError, match="not those that the run was planned with"):
        run_one(other)
    monkeypatch.setattr("prunus.sweeps.work.time.sleep", lambda _: lock.release())
    threads = torch.get_num_threads()
    assert run_one(settings.model_dump(mode="json"), threads=2).finished
    assert torch.get_num_threads() == threads


class Moving(Here):
    """Moves the folder while a run is at work in it."""

    def __init__(self, folder: Path, *, replaced: bool) -> None:
        super().__init__()
        self.folder, self.replaced = folder, replaced

    def submit(self, *args, **options):
        future = super().submit(*args, **options)
        if self.folder.exists():
            self.folder.rename(self.folder.with_name("elsewhere"))
            if self.replaced:
                self.folder.mkdir()
        return future


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_is_moved_is_not_made_anew(tmp_path, replaced):
    folder = tmp_path / "runs"
    with pytest.raises(FolderGoneError, match="runs was moved or deleted while it was written to"):
        run_sweep(experiment(), folder, Moving(folder, replaced=replaced))
    assert not (folder / "sweep.json").exists()
