"""Run folders become records, whatever state they are in."""

import json
import shutil

import pytest

from prunus import PrunusWarning
from prunus.report.model import series_of
from prunus.report.parameters import as_text
from prunus.report.records import read_runs
from prunus.runs.settings_file import flattened


def by_key(found):
    return {(r.task, r.row, r.seed, r.stage): r for r in found.records}


def test_every_command_has_its_records(runs):
    runs.train(0, 0.9)
    cs = runs.search("cs", 0, [(0.5, 0.8), (0.25, 0.7)], mask_init=-0.1)
    runs.retrain(cs, 2, 0.91)
    runs.prune("mp", 0, 0.1, 0.5, 0.88)
    found = read_runs(runs.root)
    assert (found.runs, len(found.records), found.sweeps) == (4, 4, [])
    records = by_key(found)
    task = runs.task
    dense = records[task, "dense", 0, "training"]
    assert set(dense.measured) == {"trained"} and dense.epochs == 0
    trained = dense.measured["trained"]
    assert (trained.validation, trained.test) == ({"accuracy": 0.9 - 0.01}, {"accuracy": 0.9})
    first = records[task, "cs", 0, "round 1"]
    assert (first.round, first.density, first.epochs, first.method) == (1, 0.5, 4, "cs")
    assert first.value("searched") == 0.8 and first.value("re-trained") is None
    second = records[task, "cs", 0, "round 2"]
    assert second.epochs == 8 and second.parameters == {"mask_init": -0.1}
    assert second.value("searched") == 0.7 and second.value("re-trained") == 0.91
    assert second.ticket == cs / "tickets/round-2.safetensors" and second.ticket.exists()
    pruned = records[task, "mp", 0, "fine-tuning"]
    assert (pruned.value("searched"), pruned.value("fine-tuned")) == (0.5, 0.88)
    assert (pruned.epochs, pruned.command, pruned.round) == (4, "prune", None)


def test_runs_that_were_moved_still_belong_together(runs, tmp_path):
    cs = runs.search("cs", 0, [(0.5, 0.8)])
    runs.retrain(cs, 1, 0.9)
    shutil.copytree(runs.root, tmp_path / "both" / "copy")
    shutil.move(runs.root, tmp_path / "both" / "moved")
    found = read_runs(tmp_path / "both").records
    assert len(found) == 2
    assert all(r.value("re-trained") == 0.9 for r in found)
    assert all(r.retraining.parent == r.folder.parent for r in found)


def test_transfer_and_controls_have_lines_of_their_own(runs):
    cs = runs.search("cs", 3, [(0.5, 0.8)])
    runs.retrain(cs, 1, 0.6, task="other/net")
    runs.retrain(cs, 1, 0.7, control="shuffled")
    records = by_key(read_runs(runs.root))
    other = records["other/net", "cs", 3, "round 1"]
    assert set(other.measured) == {"re-trained"} and other.value("re-trained") == 0.6
    control = records[runs.task, "cs, shuffled", 3, "round 1"]
    assert control.value("re-trained") == 0.7 and control.value("searched") is None
    assert records[runs.task, "cs", 3, "round 1"].value("re-trained") is None


def test_a_ticket_of_unknown_origin(runs):
    cs = runs.search("cs", 0, [(0.5, 0.8)])
    runs.retrain(cs, 1, 0.6)
    shutil.rmtree(cs)
    (record,) = read_runs(runs.root).records
    assert (record.row, record.method, record.density) == ("ticket", None, 0.5)


def test_parameters_are_what_differs(runs):
    runs.search("imp", 0, [(0.8, 0.9)], rate=0.2)
    runs.search("imp", 1, [(0.8, 0.9)], rate=0.2)
    runs.search("seq-cs", 0, [(0.8, 0.9)], rate=0.2, mask_init=0.0)
    runs.search("seq-cs", 0, [(0.8, 0.9)], rate=0.4, mask_init=0.0)
    found = {(r.row, r.folder.name): r.parameters for r in read_runs(runs.root).records}
    assert found["imp", "imp-0.2-0"] == found["imp", "imp-0.2-1"] == {}
    assert found["seq-cs", "seq-cs-0.4-0.0-0"] == {"mask_init": 0.0, "rate": 0.4}


def test_unfinished_runs_are_read_as_far_as_they_are(runs):
    runs.search("cs", 0, [(0.5, 0.8)], finished=False)
    new = runs.search("imp", 0, [(0.5, 0.8)])
    (new / "results.json").unlink()
    runs.prune("gmp", 0, 0.1, 0.5)
    found = read_runs(runs.root)
    assert found.runs == 3
    assert [(r.row, r.stage) for r in found.records] == [("cs", "round 1"), ("gmp", "search")]


HEAD = '{"command": "search", "task": "t", "label": "cs", "seed": 0, "stages": [%s]}'
"""Results from before the schema had a version."""


def test_results_of_the_older_format_are_read(runs):
    folder = runs.search("cs", 0, [(0.5, 0.8)])
    stage = (
        '{"stage": "round 1", "epochs": 4, "density": 0.4, "validation_accuracy": 0.6, '
        '"test_accuracy": 0.7}'
    )
    (folder / "results.json").write_text(HEAD % stage)
    (record,) = read_runs(runs.root).records
    assert record.value("searched") == 0.7 and record.density == 0.4
    assert record.measured["searched"].validation == {"accuracy": 0.6}


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("results.json", '{"stages": [{', "Expecting"),
        ("results.json", HEAD % '{"stage": "round 1"}', "'stages.0.epochs' is missing"),
        ("results.json", HEAD % '{"stage": "x", "epochs": 1, "density": NaN}', "density"),
        ("results.json", '{"version": 3}', "version=3"),
        ("results.json", "[]", "'name: value' data"),
        ("results.json", "null", "'name: value' data"),
        ("settings.yaml", "", "valid dictionary"),
        ("settings.yaml", "a: [", "expected the node content"),
        ("settings.yaml", "command: dance", "command"),
    ],
)
def test_a_damaged_file_is_named_and_left_out(runs, name, content, why):
    runs.search("cs", 0, [(0.5, 0.8)])
    bad = runs.search("cs", 1, [(0.5, 0.8)])
    (bad / name).write_text(content)
    with pytest.warns(PrunusWarning, match=f"{bad / name}.*damaged.*{why}"):
        (record,) = read_runs(runs.root).records
    assert record.seed == 0


def test_bytes_that_are_no_text(runs):
    bad = runs.search("cs", 1, [(0.5, 0.8)])
    (bad / "results.json").write_bytes(b"\xff\xfe\x00")
    with pytest.warns(PrunusWarning, match="results.json"):
        assert read_runs(runs.root).records == []


def sweep_run(folder, root, **changes):
    return {
        "id": folder and folder.name, "row": "ours", "command": "search", "task": "t",
        "method": "cs",
        "parameters": {"s0": 1}, "seed": 0, "folder": folder and str(folder.relative_to(root)),
        "status": "finished", "error": None, "needs": None, "stage": None, **changes,
    }  # fmt: skip


def write_sweep(root, *runs):
    content = {"version": 1, "name": "table", "experiment": {}, "runs": runs}
    (root / "sweep.json").write_text(json.dumps(content))


def test_a_sweep_says_what_its_runs_are(runs):
    root = runs.root
    cs = runs.search("cs", 0, [(0.5, 0.8), (0.2, 0.8)])
    again = runs.retrain(cs, 1, 0.9)
    runs.search("cs", 7, [(0.5, 0.8)])  # of an older experiment: not in the sweep any more
    retrain = {"command": "retrain", "needs": cs.name, "stage": "round 2"}
    write_sweep(
        root,
        sweep_run(cs, root, status="running"),
        sweep_run(again, root, **retrain),
        sweep_run(None, root, id="later", status="pending", **retrain),
        sweep_run(root / "bad", root, status="failed", error="no memory"),
    )
    found = read_runs(root)
    assert [(r.row, r.parameters, r.seed) for r in found.records] == [("ours", {"s0": 1}, 0)] * 2
    assert found.records[1].value("re-trained") == 0.9, "as the sweep says, not the settings"
    (sweep,) = found.sweeps
    assert sweep.state == "table: 4 runs, 1 finished, 1 running, 1 pending, 1 failed."
    assert not sweep.over


def test_a_run_that_two_rows_share(runs):
    root = runs.root
    cs = runs.search("cs", 0, [(0.5, 0.8)])
    again = runs.retrain(cs, 1, 0.9)
    write_sweep(
        root,
        *(sweep_run(cs, root, id=row, row=row) for row in "ab"),
        *(
            sweep_run(again, root, id=f"{row}2", row=row, needs=row, stage="round 1")
            for row in "ab"
        ),
    )
    records = read_runs(root).records
    assert [(r.row, r.value("re-trained")) for r in records] == [("a", 0.9), ("b", 0.9)]


def test_what_needs_a_failed_run_never_begins(runs):
    root = runs.root
    cs = runs.search("cs", 0, [(0.5, 0.8)])
    bad = sweep_run(cs, root, id="a", status="failed", error="no memory")
    waiting = sweep_run(None, root, id="b", needs="a", status="pending")
    other = sweep_run(cs, root, id="c", needs=None, status="running")
    write_sweep(root, bad, waiting)
    assert read_runs(root).over
    write_sweep(root, bad, waiting, other)
    assert not read_runs(root).over


def test_re_training_the_same_ticket_in_two_ways(runs):
    cs = runs.search("cs", 0, [(0.5, 0.8)])
    runs.retrain(cs, 1, 0.9)
    runs.epochs = 9
    runs.retrain(cs, 1, 0.95, name="longer")
    (series,) = series_of(read_runs(runs.root).records)
    assert [(r.parameters, r.value("re-trained")) for r in series.records] == [
        ({"re-training recipe.epochs": 9}, 0.95),
        ({}, 0.9),
    ]


def test_a_damaged_sweep_leaves_its_runs(runs):
    runs.search("cs", 0, [(0.5, 0.8)])
    (runs.root / "sweep.json").write_text('{"version": 2}')
    with pytest.warns(PrunusWarning, match=r"sweep.json, which is damaged: version"):
        found = read_runs(runs.root)
    assert [r.row for r in found.records] == ["cs"] and found.sweeps == []


def test_texts():
    assert flattened({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}
    assert as_text({"mask_init": -0.1, "rate": [0.2, 0.5], "x": "y"}) == (
        "mask_init -0.1, rate 0.2 0.5, x y"
    )
