"""The paper's selections and their cost, worked out by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunus.report.competition import competitions
from prunus.report.file import read_report
from prunus.report.findings import finding, notes
from prunus.report.intervals import Measured
from prunus.report.model import comparisons, series_of
from prunus.report.select import Cost, cost_of, picks, whole_cost
from prunus.report.tables import (
    cost_table,
    points_table,
    selection_table,
)
from prunus.runs.results import StageResult
from support.made_records import dense, measured, record, seeds

RECORDS = [
    dense(0, 0.90),
    dense(1, 0.92),  # 0.91 on average
    record("cs", 0, 0.5, 0.93, number=1, run="a"),
    record("cs", 1, 0.4, 0.92, number=1, run="a"),
    record("cs", 0, 0.2, 0.93, number=2, run="a"),
    record("cs", 1, 0.2, 0.89, number=2, run="a"),  # exactly as good on average
    record("cs", 0, 0.3, 0.94, number=1, run="b"),
    record("cs", 1, 0.3, 0.95, number=1, run="b"),
    record("cs", 0, 0.1, 0.92, number=2, run="b"),  # better than dense, but not the other seed
    record("cs", 1, 0.1, 0.86, number=2, run="b"),
    record("imp", 0, 0.8, 0.90, number=1),
    record("imp", 0, 0.6, 0.89, number=2),  # exactly 2 % below
    record("imp", 0, 0.5, 0.80, number=3),
]


def chosen(row, rule, margin=0.2):
    (report,) = comparisons(RECORDS, margin)
    return next(p for name, series, p in picks(report) if (name, series.row) == (rule, row))


def test_dense():
    (report,) = comparisons(RECORDS)
    assert report.title == "t" and report.dense.count == 2
    assert report.dense.mean == pytest.approx(0.91)


def test_sparsest_matching():
    # Differences 0.03 and -0.03: t of one degree of freedom times 0.03 is 0.38.
    assert chosen("cs", "sparsest matching", margin=0.39).density.mean == pytest.approx(0.2)
    found = chosen("cs", "sparsest matching", margin=0.07)  # 0.04 and 0.03: 0.035 +- 0.064
    assert (found.parameters, found.round) == ({"run": "b"}, 1)
    assert chosen("cs", "sparsest matching", margin=0.02) is None
    assert chosen("imp", "sparsest matching", margin=1.0) is None, "one seed, of unknown error"


def test_best_performing():
    found = chosen("cs", "best performing")
    assert (found.parameters, found.round) == ({"run": "b"}, 1)
    assert chosen("imp", "best performing").density.mean == 0.8


def test_within_2_percent_of_dense():
    found = chosen("cs", "sparsest within 2 %")
    assert (found.parameters, found.round) == ({"run": "b"}, 2)  # 0.89 on average
    assert chosen("imp", "sparsest within 2 %").density.mean == 0.6


def judged(row, seed, density, test, validation, **changes):
    measures = {"re-trained": measured(test, validation=validation)}
    return record(row, seed, density, None, measured=measures, **changes)


def test_picks_are_made_on_validation_data_and_never_on_test_data():
    made = [dense(seed, 0.9) for seed in (0, 1)]
    for seed in (0, 1):
        made += [
            judged("cs", seed, 0.5, 0.80, 0.95, run="good on validation data"),
            judged("cs", seed, 0.1, 0.99, 0.80, run="good on test data"),
        ]
    (report,) = comparisons(made)
    assert report.split == "validation"
    for _, _, point in picks(report):
        assert point.parameters == {"run": "good on validation data"}
        assert point.value.mean == pytest.approx(0.80), "what is reported"
    table = points_table(report)
    assert table.header[-1] == "matching on validation", "as the finding says"
    assert [row[-1] for row in table.rows] == ["", "yes", "no"]


def test_old_results_without_validation_values_say_so():
    alone = StageResult(stage="s", epochs=1, density=0.5, test={"accuracy": 0.95})
    made = [dense(0, 0.9), dense(1, 0.9), judged("cs", 0, 0.5, 0.8, 0.95),
            record("cs", 1, 0.2, None, run="b", measured={"re-trained": alone})]  # fmt: skip
    (report,) = comparisons(made)
    assert report.split is None
    best = next(point for rule, _, point in picks(report) if rule == "best performing")
    assert best.parameters == {"run": "b"}
    assert any("no validation values, so picks were made by test" in text for text in notes(report))


def test_cost():
    # Two runs of two rounds of ten epochs; of the best one, and of the other, one round.
    assert cost_of(chosen("cs", "sparsest matching", margin=0.39)) == Cost(40, 20)
    assert cost_of(chosen("cs", "best performing")) == Cost(20, 10)
    # IMP needs its rounds one after the other, however many workers there are.
    assert cost_of(chosen("imp", "sparsest within 2 %")) == Cost(20, 20)
    cs, imp = series_of(RECORDS)
    assert whole_cost(cs) == Cost(40, 20)
    assert whole_cost(imp) == Cost(30, 30)


def test_a_copy_of_a_run_counts_once():
    copies = [replace(r, folder=Path("elsewhere") / r.folder) for r in RECORDS]
    (once,), (twice,) = comparisons(RECORDS), comparisons([*RECORDS, *copies])
    assert selection_table(twice) == selection_table(once)
    assert cost_table(twice) == cost_table(once)


def test_cost_of_all_where_some_seeds_have_fewer_runs():
    """Two runs with seed 0, one of them with seed 1 too: it takes two to get the curve."""
    [report] = comparisons(
        [dense(0, 0.9), *seeds("cs", 0.1, [0.8, 0.8]), record("cs", 0, 0.05, 0.7, run="b")]
    )
    assert cost_table(report).rows == [["cs", "2", "20", "10"]]


def trained_with(epochs, images=None):
    return {"recipe.epochs": epochs, "recipe.drops": [epochs / 2], "data.train_images": images}


def test_only_what_shares_a_recipe_is_compared():
    records = [
        dense(0, 0.8, conditions=trained_with(8)),
        dense(1, 0.82, conditions=trained_with(8)),
        dense(0, 0.9, conditions=trained_with(85)),
        dense(0, 0.5, conditions=trained_with(8, 100)),
        record("cs", 0, 0.5, 0.85, run="a", conditions=trained_with(8)),
        record("cs", 0, 0.5, 0.89, run="b", conditions=trained_with(85)),
        record("cs", 0, 0.5, 0.4, run="c", conditions=trained_with(8, 50)),
    ]
    short, long, few, waiting = comparisons(records)
    assert [(r.title, r.dense and round(r.dense.mean, 3)) for r in (short, long, few, waiting)] == [
        ("t, epochs 8", 0.81),
        ("t, epochs 85", 0.9),
        ("t, epochs 8, data.train_images 100", 0.5),
        ("t, data.train_images 50", None),
    ]
    assert [len(r.series) for r in (short, long, few, waiting)] == [1, 1, 0, 1]
    assert [p.value.mean for p in short.points + long.points] == [0.85, 0.89]


def test_the_nearest_dense_network_will_do():
    """`prunus prune` has a recipe of its own, but is compared with the network that is there."""
    pruning = {**trained_with(8), "recipe.commit_epoch": 6}
    other = record("gmp", 0, 0.1, 0.8, conditions=pruning)
    near, far = dense(0, 0.7, conditions=trained_with(8)), dense(0, 0.9, conditions=trained_with(9))
    reports = comparisons([far, near, other])
    assert [(r.dense.mean, len(r.series)) for r in reports] == [(0.9, 0), (0.7, 1)]
    (report,) = comparisons([far, other])
    assert len(report.series) == 1 and report.title == "t"


def test_the_papers_own_count():
    """Section 5.1: 4675 and 425 epochs for CS, 2550 for IMP."""
    cs = [record("cs", 0, 0.1, 0.9, number=n, run=str(i), epochs=85)
          for i in range(11) for n in range(1, 6)]  # fmt: skip
    imp = [record("imp", 0, 0.1, 0.9, number=n, epochs=85) for n in range(1, 31)]
    ours, theirs = series_of([*cs, *imp])
    assert whole_cost(ours) == Cost(4675, 425)
    assert whole_cost(theirs) == Cost(2550, 2550)


def test_without_a_dense_network_only_the_best_can_be_told():
    (report,) = comparisons([record("cs", 0, 0.5, 0.9)])
    found = {rule: point for rule, _, point in picks(report)}
    assert found["best performing"] is not None
    assert found["sparsest matching"] is None and found["sparsest within 2 %"] is None
    assert finding(report) == "There is no dense network to compare with."


def test_measures_are_not_mixed():
    searched = {"searched": measured(0.99)}
    waiting = record("cs", 0, 0.1, None, number=2, measured=searched)
    (series,) = series_of([record("cs", 0, 0.5, 0.9), waiting])
    assert series.measure == "re-trained" and len(series.records) == 1, "the other waits"
    (series,) = series_of([waiting])
    assert series.measure == "searched"
    tuned = record("cs", 0, 0.3, None, command="prune",
                   measured={"fine-tuned": measured(0.9)})  # fmt: skip
    assert [n.name for n in series_of([record("cs", 0, 0.5, 0.9), tuned])] == [
        "cs, re-trained",
        "cs, fine-tuned",
    ]
    both = {**tuned.measured, "re-trained": measured(0.8)}
    found = series_of([replace(tuned, measured=both)])
    assert [(n.name, n.points[0].value.mean) for n in found] == [
        ("cs, fine-tuned", 0.9),
        ("cs, re-trained", 0.8),
    ]


def test_validation_counts_where_there_are_no_test_images():
    alone = StageResult(stage="s", epochs=1, density=1.0, validation={"accuracy": 0.7})
    both = alone.model_copy(update={"test": {"accuracy": 0.6}})
    for stage, value in ((alone, 0.7), (both, 0.6)):
        assert record("cs", 0, 0.5, None, measured={"searched": stage}).value("searched") == value


def test_points_and_the_curve_that_connects_them():
    cs, imp = series_of(RECORDS)
    found = cs.points
    assert [(p.parameters["run"], p.stage, p.on_curve) for p in found] == [
        ("a", "round 1", False),
        ("a", "round 2", True),
        ("b", "round 1", False),
        ("b", "round 2", True),
    ]
    assert found[0].density == Measured({0: 0.5, 1: 0.4}) and len(found[0].records) == 2
    assert [p.on_curve for p in imp.points] == [True] * 3, "one run is itself the curve"


def test_tables():
    (report,) = comparisons(RECORDS, 0.39)
    rows = selection_table(report).rows
    assert rows[0][:6] == ["dense", "", "trained", "", "100.00", "91.00±12.71"]
    assert rows[1] == ["sparsest matching", "cs", "re-trained", "2", "20.00±0.00", "91.00±25.41",
                       "+0.00±38.12", "2", "40", "20", "run a"]  # fmt: skip
    assert rows[2] == ["sparsest matching", "imp", "re-trained", "", "none", *[""] * 6]
    assert rows[4][4:7] == ["80.00", "90.00", "+0.00"], "of one seed, no error is known"
    assert cost_table(report).rows == [["cs", "4", "40", "20"], ["imp", "3", "30", "30"]]
    far = comparisons([dense(0, 0.99), *(r for r in RECORDS if r.row != "dense")])[0]
    rules = [row[:5] for row in selection_table(far).rows if row[4] == "none"]
    assert rules == [[rule, "all", "", "", "none"] for rule in (
        "sparsest matching", "sparsest within 2 %")], "not a line for each method"  # fmt: skip


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1), st.floats(0, 1))
def test_rules_hold_for_any_records(values, bar):
    made = [record("cs", seed, d, a, number=i) for i, (d, a) in enumerate(values, 1)
            for seed in (0, 1)]  # fmt: skip
    (report,) = comparisons([dense(0, bar), dense(1, bar), *made])
    found = {rule: point for rule, _, point in picks(report)}
    best = found["best performing"]
    assert best.value.mean == max(a for _, a in values)
    for rule, least in (("sparsest matching", bar - 0.005), ("sparsest within 2 %", bar - 0.02)):
        good = [d for d, a in values if a > least + 1e-9]
        if good:
            assert found[rule].density.mean <= min(good)
        elif not any(abs(a - least) <= 1e-9 for _, a in values):
            assert found[rule] is None
    if found["sparsest matching"]:
        within = found["sparsest within 2 %"]
        assert within.density.mean <= found["sparsest matching"].density.mean


def test_points_with_the_rates_of_another_row_stand_beside_it():
    made = [
        dense(0, 0.9),
        *(record("cs", 0, d, 0.91, run=run) for run, d in (("a", 0.5), ("b", 0.2))),
        *(record("imp", 0, d, 0.8, run=run) for run, d in (("a", 0.5), ("b", 0.2))),
    ]
    (report,) = comparisons(made)
    table = points_table(report)
    assert [row[:2] for row in table.rows] == [
        ["dense", ""], ["cs", "run a"], ["imp", "run a"], ["cs", "run b"], ["imp", "run b"],
    ]  # fmt: skip
    assert {row[-2] for row in table.rows[1:]} == {"15"}, "ten of search and five of re-training"


def test_a_density_that_nothing_was_measured_at_is_left_out():
    """As the budget of a first round, where only the last one was re-trained."""
    file = Path(__file__).parents[2] / "results" / "demo.json"
    [comparison] = comparisons(read_report(file).data.records)
    assert [own.target for own in competitions(comparison)] == [0.1, 0.025, 0.01]


def test_rows_of_one_name_are_no_seeds_of_each_other():
    """Two rows without a grid, called after their method: their runs are not averaged."""

    def gmp(density, values):
        method = {"name": "gmp", "target_density": density}
        more = {"run": "", "settings": {"method": method}, "parameters": {}}
        folders = (Path(f"{density}-{seed}") for seed in range(len(values)))
        made = seeds("gmp", density, values, **more)
        return [replace(r, folder=folder) for r, folder in zip(made, folders, strict=True)]

    [report] = comparisons(
        [dense(0, 0.9), dense(1, 0.9), *gmp(0.1, [0.7, 0.8]), *gmp(0.2, [0.85, 0.87])]
    )
    found = [(p.parameters, p.density.mean, p.value.mean, p.value.count) for p in report.points]
    assert found == [
        ({"target_density": 0.1}, 0.1, pytest.approx(0.75), 2),
        ({"target_density": 0.2}, 0.2, pytest.approx(0.86), 2),
    ]
    assert [own.target for own in competitions(report)] == [0.2, 0.1]


def test_equal_runs_that_are_called_differently_are_averaged():
    """As of a search that was done again to keep its tickets."""
    settings = {"method": {"name": "cs", "mask_init": 0.0}}
    first = record("cs", 0, 0.1, 0.7, settings={**settings, "whole_tickets": False})
    again = record("cs", 0, 0.1, 0.8, settings={**settings, "whole_tickets": True})
    [report] = comparisons([first, replace(again, folder=Path("again"))])
    assert [(p.parameters, p.value.mean) for p in report.points] == [({"run": "a"}, 0.75)]
