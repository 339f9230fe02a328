"""Results that were committed in another session: runs that need not be done again."""

import copy
import json
import warnings

import pytest
import yaml

from prunus.report.file import read_report
from prunus.sweeps.planned import PlannedRun
from prunus.sweeps.state import spared
from support.sweeping import SMALL, TASK, Here

MINE = {
    "name": "mine",
    "tasks": TASK,
    "settings": {**SMALL, "rounds": 1},
    "rows": [{"method": "cs", "then": {"retrain": "all"}}],
}


def run(id_, needs=None):
    made = PlannedRun(id_, "search", "t", "cs", id_.split("/")[0], {}, 0, 1)
    object.__setattr__(made, "needs", needs)
    return made


def test_what_is_needed_by_an_unknown_run_has_to_be_done():
    plan = [
        run("a/x"),
        run("b/x/1", "a/x"),
        run("c/x/1/2", "b/x/1"),
        run("a/y"),
        run("d/y/1", "a/y"),
    ]
    assert spared(plan, {"x", "x/1", "x/1/2", "y", "y/1"}) == {r.id for r in plan}
    assert spared(plan, {"x", "x/1", "y", "y/1"}) == {"a/y", "d/y/1"}, "c needs b, which needs a"
    assert spared(plan, {"x", "y/1"}) == {"d/y/1"}
    assert spared(plan, ()) == frozenset()


@pytest.fixture
def sweep(cli, monkeypatch, tmp_path):
    """Runs a sweep of `MINE` with changes; the commands and seeds that were run."""
    executor = Here()
    monkeypatch.setattr("prunus.sweeps.LocalExecutor", lambda *_, **__: executor)

    def sweep(out, *arguments, **changes):
        executor.calls.clear()
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**copy.deepcopy(MINE), **changes}))
        status, output, errors = cli("sweep", "mine.yaml", "--out", out, *arguments)
        assert status == 0, errors
        done = [(settings["command"], settings["seed"]) for settings, *_ in executor.calls]
        return sorted(done), output

    return sweep


def test_a_committed_file_stands_for_runs_of_another_session(sweep, cli, tmp_path):
    first, _ = sweep("one")
    assert first == [("retrain", 0), ("search", 0), ("train", 0)]
    assert cli("report", "one", "--json", "x.json")[0] == 0
    known = read_report(tmp_path / "x.json")
    assert len(known.finished) == 3
    for one in known.subnetworks:
        assert one.settings["task"] == TASK and one.seed == 0
        for origin in one.runs.values():
            assert origin.seconds > 0 and origin.processor and origin.cores and origin.torch
    assert len(known.subnetworks[1].runs) == 2, "its search and its re-training"

    # Another session: one more seed, and the row has another name.
    rows = [{**MINE["rows"][0], "row": "CS"}]
    more = {"seeds": [0, 1], "rows": rows}
    second, output = sweep("two", "--known", "x.json", **more)
    assert second == [("retrain", 1), ("search", 1), ("train", 1)]
    assert "6 of 6 runs are finished" in output
    assert (
        "6 runs, 6 of them finished." in sweep("two", "--known", "x.json", "--dry-run", **more)[1]
    )
    assert "6 runs, 3 of them finished." in sweep("two", "--dry-run", **more)[1]

    # Both together, with the same name of the row; and once more, which changes nothing.
    text = (tmp_path / "x.json").read_text().replace('"row":"cs"', '"row":"CS"')
    (tmp_path / "x.json").write_text(text)
    for _ in range(2):
        status, output, errors = cli("report", "two", "x.json", "--json", "y.json")
        assert status == 0, errors
        both = read_report(tmp_path / "y.json")
        assert both.runs == 6 and len(both.finished) == 6
        assert sorted((one.row, one.seed) for one in both.subnetworks) == [
            ("CS", 0), ("CS", 1), ("dense", 0), ("dense", 1),
        ]  # fmt: skip
        (tmp_path / "x.json").write_text((tmp_path / "y.json").read_text())

    # A control needs the ticket, which no results file holds: its search is done again.
    rows = [{"row": "CS", "method": "cs",
             "then": [{"retrain": "all"}, {"settings": {"control": "reinit"}}]}]  # fmt: skip
    done, _ = sweep("three", "--known", "y.json", rows=rows)
    assert done == [("retrain", 0), ("search", 0)]


def test_a_file_that_is_not_one_is_named(cli, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(MINE))
    status, _, errors = cli("sweep", "mine.yaml", "--known", "x.json")
    assert status == 2 and "x.json is not a file of prunus report --json" in errors


def test_only_a_part_of_the_runs(sweep, cli, tmp_path):
    more = {"seeds": [0, 1]}
    done, output = sweep("one", "--only", "* cs *seed 1", **more)
    assert done == [("retrain", 1), ("search", 1)]
    assert "2 of 2 runs are finished" in output
    assert "6 runs, 2 of them finished." in sweep("one", "--dry-run", **more)[1]
    assert "2 runs, 2 of them finished." in sweep("one", "--dry-run", "--only", "*cs*1", **more)[1]

    # What it needs is done too; what was done before stays in sweep.json, and so in the report.
    done, _ = sweep("one", "--only", "*re-trained seed 0", **more)
    assert done == [("retrain", 0), ("search", 0)]
    runs = json.loads((tmp_path / "one" / "sweep.json").read_text())["runs"]
    assert {(run["command"], run["seed"]): run["status"] for run in runs} == {
        ("train", 0): "pending", ("search", 0): "finished", ("retrain", 0): "finished",
        ("train", 1): "pending", ("search", 1): "finished", ("retrain", 1): "finished",
    }  # fmt: skip

    # A search whose results are known is not done again for a re-training that nobody asked for.
    assert cli("report", "one", "--json", "x.json")[0] == 0
    changed = {**more, "rows": [{"method": "cs", "then": {"settings": {"control": "reinit"}}}]}
    known = ("--known", "x.json", "--only", "* cs seed 0")
    assert sweep("two", *known, **changed)[0] == []
    known = ("--known", "x.json", "--only", "*reinit*seed 0")
    assert sweep("two", *known, **changed)[0] == [("retrain", 0), ("search", 0)]


def test_a_pattern_that_fits_nothing_is_refused(cli, tmp_path):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(MINE))
    status, _, errors = cli("sweep", "mine.yaml", "--out", "one", "--only", "cs")
    assert (
        status == 2 and "--only 'cs' fits none of the 3 runs" in errors and "re-trained" in errors
    )
    assert not (tmp_path / "one").exists()


def test_a_line_of_the_dry_run_is_a_pattern_of_itself(sweep, cli):
    """Though a pattern's brackets are a choice of characters."""
    rows = [{"method": "cs", "grid": {"method.select": [["0.*", "3.*"]]}}]
    line = f"{TASK} cs select=['0.*', '3.*'] seed 0"
    assert line in sweep("one", "--dry-run", rows=rows)[1]
    assert "1 runs, 0 of them" in sweep("one", "--dry-run", "--only", line, rows=rows)[1]
    status, _, errors = cli("sweep", "mine.yaml", "--out", "one", "--only", "seed 0")
    assert status == 2 and "* stands for anything: '*seed 0*' fits 2\n" in errors


def test_a_file_that_spares_nothing_warns(sweep, cli, tmp_path):
    sweep("one")
    assert cli("report", "one", "--json", "x.json")[0] == 0
    known = ("sweep", "mine.yaml", "--known", "x.json", "--dry-run")
    assert cli(*known)[2] == ""
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**MINE, "seeds": [7]}))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        status, _, errors = cli(*known)
    assert status == 0 and "--known x.json has the results of none of these runs" in errors
