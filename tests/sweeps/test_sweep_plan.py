"""From an experiment to runs: counted and checked by hand; nothing is trained here."""

import pytest

from prunus import SettingError
from prunus.sweeps import AwaitsRates, AwaitsTicket, Ready, make_plan
from support.sweeping import SMALL, TASK, TWELVE, experiment


def plan(tmp_path, content=TWELVE, **changes):
    return make_plan(experiment(content, **changes), tmp_path)


def row(**content):
    return {"name": "one", "tasks": TASK, "settings": SMALL, "rows": [content]}


def test_twelve(tmp_path):
    runs = plan(tmp_path)
    assert [run.command for run in runs] == [
        "train",
        *(["search", "retrain", "retrain"] * 3),
        *(["prune"] * 2),
    ]
    assert len({run.id for run in runs}) == 12
    dense, search, first, second = runs[:4]
    assert (dense.row, dense.method, dense.parameters) == ("dense", None, {})
    assert (search.row, search.method, search.parameters) == ("cs", "cs", {"mask_init": -0.02})
    assert (first.needs, first.stage, second.stage) == (search.id, "round 1", "round 2")
    assert (first.row, first.method, first.parameters) == ("cs", "cs", {"mask_init": -0.02})
    assert [run.epochs for run in runs[:4]] == [2, 4, 2, 2]
    assert isinstance(search, Ready) and search.settings.folder.parent == tmp_path
    assert isinstance(first, AwaitsTicket)
    assert runs == plan(tmp_path), "ids do not change"


def test_seeds_come_one_after_the_other_each_with_its_baseline(tmp_path):
    runs = plan(tmp_path, seeds=[5, 3])
    assert [run.seed for run in runs] == [5] * 12 + [3] * 12
    assert [run.seed for run in runs if run.row == "dense"] == [5, 3]
    assert runs[0].row == runs[12].row == "dense"


def test_more_values_keep_the_others_ids(tmp_path):
    before = {run.id for run in plan(tmp_path)}
    rows = [{**TWELVE["rows"][0], "grid": {"method.mask_init": [-0.02, 0.0, 0.02, 0.04]}}]
    after = {run.id for run in plan(tmp_path, rows=[*rows, *TWELVE["rows"][1:]])}
    assert before < after and len(after) == 15


def test_equal_runs_of_one_row_are_one_and_of_two_rows_share_a_folder(tmp_path):
    rows = [
        {"method": "cs", "grid": {"method.mask_init": [0.0, 0]}},
        {"row": "ours", "method": {"name": "cs", "mask_init": 0.0}},
        {"command": "train"},
    ]
    dense, one, ours = plan(tmp_path, rows=rows)
    assert (dense.row, one.row, ours.row) == ("dense", "cs", "ours")
    assert one.id != ours.id and one.settings.folder == ours.settings.folder


def test_tasks_have_settings_and_rows_may_choose_among_them(tmp_path):
    tasks = {TASK: {"recipe": {"lr": 0.05}}, "digits/lenet": None}
    rows = [{"method": "cs"}, {"method": "imp", "tasks": "digits/lenet"}]
    runs = plan(tmp_path, tasks=tasks, rows=rows)
    assert sorted((run.task, run.row) for run in runs) == [
        (TASK, "cs"),
        (TASK, "dense"),
        ("digits/lenet", "cs"),
        ("digits/lenet", "dense"),
        ("digits/lenet", "imp"),
    ]
    assert {run.task: run.settings.recipe.lr for run in runs} == {TASK: 0.05, "digits/lenet": 0.1}


def test_baseline_with_its_own_settings_or_none(tmp_path):
    assert "dense" not in {run.row for run in plan(tmp_path, dense=False)}
    dense = plan(tmp_path, dense={"recipe": {"epochs": 3}})[0]
    assert dense.row == "dense" and dense.settings.recipe.epochs == 3


def test_transfer_and_controls(tmp_path):
    then = [
        {"retrain": "last", "task": "digits/lenet"},
        {"retrain": "last", "settings": {"control": "reinit"}},
        {"retrain": "last", "row": "cs, longer", "settings": {"recipe": {"epochs": 3}}},
    ]
    runs = plan(tmp_path, row(method="cs", then=then))
    assert [(run.row, run.task, run.stage, run.epochs) for run in runs] == [
        ("dense", TASK, None, 2),
        ("dense", "digits/lenet", None, 2),
        ("cs", TASK, None, 4),
        (f"cs from {TASK}", "digits/lenet", "round 2", 2),
        ("cs (reinit)", TASK, "round 2", 2),
        ("cs, longer", TASK, "round 2", 3),
    ]


def test_retraining_of_some_rounds(tmp_path):
    runs = plan(tmp_path, row(method="cs", settings={"rounds": 4}, then={"retrain": [2, 4]}))
    assert [run.stage for run in runs] == [None, None, "round 2", "round 4"]
    with pytest.raises(SettingError, match=r"retrain=\[2, 9\] .* round 9, but there are 4"):
        plan(tmp_path, row(method="cs", settings={"rounds": 4}, then={"retrain": [2, 9]}))


def test_fine_tuned_and_retrained(tmp_path):
    """Of one search; w^(k) is kept only for that."""
    rows = [{"command": "prune", "method": "cs", "then": "retrain"},
            {"command": "prune", "method": "gmp"}]  # fmt: skip
    both, retrained, alone = plan(tmp_path, dense=False, rows=rows)
    assert (retrained.command, retrained.needs, retrained.stage) == ("retrain", both.id, "search")
    assert (both.settings.rewind_epoch, alone.settings.rewind_epoch) == (1, None)
    both, *_ = plan(tmp_path, dense=False, rows=rows[:1], settings={})
    assert both.settings.rewind_epoch == 2, "as in a search"


def test_rates_of_another_row(tmp_path):
    rows = [
        {"method": "cs", "grid": {"method.mask_init": [0.0, 0.1]}, "settings": {"rounds": 3}},
        {"method": "imp", "rates_of": "cs", "then": {"retrain": "last"}},
    ]
    runs = [run for run in plan(tmp_path, dense=False, rows=rows) if run.row == "imp"]
    assert [(run.command, run.parameters, run.stage) for run in runs] == [
        ("search", {"mask_init": 0.0}, None),
        ("retrain", {"mask_init": 0.0}, "round 3"),
        ("search", {"mask_init": 0.1}, None),
        ("retrain", {"mask_init": 0.1}, "round 3"),
    ]
    assert isinstance(runs[0], AwaitsRates) and runs[0].needs.startswith("cs/")
    assert runs[0].epochs == 6 and runs[1].needs == runs[0].id


def test_even_rates_end_where_the_other_search_did(tmp_path, monkeypatch):
    monkeypatch.setattr("prunus.sweeps.planned.rates_of", lambda _: [0.5, 0.92])
    rows = [{"method": "cs"}, {"method": "imp", "rates_of": "cs"},
            {"row": "even", "method": "imp", "rates_of": "cs", "even_rates": True},
            {"row": "gentle", "method": "imp", "rates_of": "cs", "even_rates": True,
             "settings": {"rounds": 4}}]  # fmt: skip
    _, same, even, gentle = plan(tmp_path, dense=False, rows=rows)
    assert same.id != even.id
    expected = pytest.approx([1 - 0.04**0.25] * 4)
    assert gentle.settle(tmp_path).method["rate"] == expected, "in more rounds, to the same end"
    assert same.settle(tmp_path).method["rate"] == [0.5, 0.92]
    assert even.settle(tmp_path).method["rate"] == pytest.approx([0.8, 0.8]), "4 % are kept"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (row(method="csx"), "row 'csx': there is no method named 'csx'. Did you mean 'cs'"),
        (row(settings={"recipe": {"epoch": 1}}), "row 'cs': .*'epoch'. Did you mean 'epochs'"),
        (row(grid={"method.mask_int": [0]}), "row 'cs': .*'mask_int'. Did you mean 'mask_init'"),
        (row(settings={"round": 2}), "of row 'cs'. named 'round'. Did you mean 'rounds'"),
        (row(grid={"seed": [1]}), "row 'cs': the setting 'seed' .* comes from seeds"),
        (row(command="prune", settings={"rounds": 2}), "row 'cs': .*'rounds'"),
        (row(tasks="digits/mlp"), "of row 'cs'. named 'digits/mlp'"),
        (row(settings={"engine": {"devices": 2}}), "a run of a sweep has one device"),
        (row(method="imp", rates_of="cs"), "search above row 'imp' named 'cs'"),
        (row(then={"settings": {"control": "shufled"}}), "'shufled'. Did you mean 'shuffled'"),
        (row(then={"settings": {"control": "random"}}), "set whole_tickets: true in .* row 'cs'"),
        (row(then={"settings": {"recipe": {"lrr": 1}}}), "'lrr'. Did you mean 'lr'"),
        (row(then={"task": "digits/lenett"}), "'lenett'. Did you mean 'lenet'"),
    ],
)
def test_everything_is_checked_before_the_first_run(tmp_path, content, message):
    with pytest.raises(SettingError, match=message):
        plan(tmp_path, content)


def test_rates_are_for_imp(tmp_path):
    rows = [{"method": "cs"}, {"row": "other", "method": "cs", "rates_of": "cs"}]
    with pytest.raises(SettingError, match="row 'other': rates_of is for searches by imp"):
        plan(tmp_path, rows=rows)


@pytest.mark.parametrize(
    ("method", "rounds"),
    [
        ({"name": "cs", "target_density": [0.5, "20%", 0.1]}, 3),
        ({"name": "cs", "target_density": 0.1}, 1),
        ({"name": "gmp", "target_density": 0.1}, 1),
        ("snip", 1),
        ({"name": "imp", "rate": [0.5, 0.2]}, 2),
        ({"name": "imp", "rate": 0.5}, 5),
        ("cs", 5),
    ],
)
def test_rounds_that_are_not_given_are_as_on_the_command_line(tmp_path, method, rounds):
    """A search of two densities made five tickets, four of them equally dense."""
    content = row(method=method)
    content["settings"] = {name: value for name, value in SMALL.items() if name != "rounds"}
    _, search = plan(tmp_path, content)
    assert search.settings.rounds == rounds
