"""The paper's selections and their cost, worked out by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunus.report.model import Spread, comparisons, series_of
from prunus.report.records import Record
from prunus.report.select import Cost, cost_of, picks, select, whole_cost
from prunus.report.tables import cost_table, points_table, selection_table, verdict
from prunus.runs.results import StageResult
from support.made_runs import NATS


def measured(value, name="accuracy"):
    return StageResult(stage="s", epochs=5, density=0.5, test={name: value})


def record(row, seed, density, accuracy, *, number=1, run="a", epochs=10, **changes):
    values = {
        "task": "t", "row": row, "command": "search", "method": row, "parameters": {"run": run},
        "seed": seed, "folder": Path(f"{row}-{run}-{seed}"), "stage": f"round {number}",
        "round": number, "density": density, "epochs": epochs * number,
        "measured": {"re-trained": measured(accuracy)} if accuracy is not None else {},
    }  # fmt: skip
    return Record(**{**values, **changes})


def dense(seed, accuracy, **changes):
    return record("dense", seed, 1.0, None, command="train", method=None,
                  measured={"trained": measured(accuracy)}, **changes)  # fmt: skip


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


def chosen(row, rule):
    (report,) = comparisons(RECORDS)
    return next(p for name, series, p in picks(report) if (name, series.row) == (rule, row))


def test_dense():
    (report,) = comparisons(RECORDS)
    assert report.title == "t" and report.dense.count == 2
    assert report.dense.mean == pytest.approx(0.91)


def test_sparsest_matching():
    found = chosen("cs", "sparsest matching")
    assert (found.parameters, found.round) == ({"run": "a"}, 2)
    assert found.density.mean == pytest.approx(0.2)
    assert found.value.mean == pytest.approx(0.91)
    assert found.value.deviation == pytest.approx(0.0008**0.5)  # of 0.93 and 0.89
    assert chosen("imp", "sparsest matching") is None


def test_best_performing():
    found = chosen("cs", "best performing")
    assert (found.parameters, found.round) == ({"run": "b"}, 1)
    assert chosen("imp", "best performing").density.mean == 0.8


def test_within_2_percent_of_dense():
    found = chosen("cs", "sparsest within 2 %")
    assert (found.parameters, found.round) == ({"run": "b"}, 2)  # 0.89 on average
    assert chosen("imp", "sparsest within 2 %").density.mean == 0.6


def test_cost():
    # Two runs of two rounds of ten epochs; of the best one, and of the other, one round.
    assert cost_of(chosen("cs", "sparsest matching")) == Cost(40, 20)
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
    assert picks(short)[0][2] is not None and picks(long)[0][2] is None


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
    (series,) = series_of([record("cs", 0, 0.5, 0.9)])
    found = select(series, None)
    assert found["best performing"] is not None
    assert found["sparsest matching"] is None and found["sparsest within 2 %"] is None


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
    assert found[0].density == Spread.of([0.5, 0.4]) and len(found[0].records) == 2
    assert [p.on_curve for p in imp.points] == [True] * 3, "one run is itself the curve"


def test_tables():
    (report,) = comparisons(RECORDS)
    rows = selection_table(report).rows
    assert rows[0][:6] == ["dense", "", "trained", "", "100.00", "91.00±1.41"]
    assert rows[1] == ["sparsest matching", "cs", "re-trained", "2", "20.00±0.00", "91.00±2.83",
                       "2", "40", "20", "run a"]  # fmt: skip
    assert rows[2] == ["sparsest matching", "imp", "re-trained", "", "none", "", "", "", "", ""]
    assert rows[4][4:6] == ["80.00", "90.00"], "one seed has no deviation"
    assert cost_table(report).rows == [["cs", "4", "40", "20"], ["imp", "3", "30", "30"]]


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1), st.floats(0, 1))
def test_rules_hold_for_any_records(values, bar):
    made = [record("cs", 0, d, a, number=i) for i, (d, a) in enumerate(values, 1)]
    (series,) = series_of(made)
    found = select(series, bar)
    best = found["best performing"]
    assert best.value.mean == max(a for _, a in values)
    for rule, least in (("sparsest matching", bar), ("sparsest within 2 %", bar - 0.02)):
        good = [d for d, a in values if a >= least - 1e-9]
        assert (found[rule].density.mean if found[rule] else None) == (min(good) if good else None)
    if found["sparsest matching"]:
        within = found["sparsest within 2 %"]
        assert within.density.mean <= found["sparsest matching"].density.mean


# A language model: lower is better, and the unit is not per cent.


def nats(row, seed, density, value, **changes):
    own = {"metrics": (NATS,), "measured": {"re-trained": measured(value, "loss")}}
    return record(row, seed, density, None, **{**own, **changes})


LANGUAGE = [
    nats("dense", 0, 1.0, 1.5, command="train", measured={"trained": measured(1.5, "loss")}),
    nats("cs", 0, 0.5, 1.45, number=1),
    nats("cs", 0, 0.3, 1.50, number=2),  # exactly as good
    nats("cs", 0, 0.1, 1.53, number=3),  # exactly 2 % worse
    nats("cs", 0, 0.05, 1.60, number=4),
]


def test_lower_is_better_for_a_loss():
    (report,) = comparisons(LANGUAGE)
    found = {rule: point.density.mean for rule, _, point in picks(report)}
    assert found == {"sparsest matching": 0.3, "best performing": 0.5, "sparsest within 2 %": 0.1}


def test_tables_show_the_metric_and_its_unit():
    (report,) = comparisons(LANGUAGE)
    table = selection_table(report)
    assert table.header[4:6] == ["kept %", "loss (nats)"]
    assert table.rows[0][5] == "1.5000" and table.rows[1][4:6] == ["30.00", "1.5000"]
    table = points_table(report)
    assert table.header == ["method", "settings", "stage", "kept %", "re-trained (nats)", "epochs",
                            "matching"]  # fmt: skip
    assert [row[-1] for row in table.rows] == ["", "yes", "yes", "no", "no"]
    assert table.marked == {1, 2}
    assert verdict(report) == (
        "The dense network reaches 1.5000 nats. The sparsest cs subnetwork that matches it keeps "
        "30.00% of the weights and reaches 1.5000 nats."
    )


def test_networks_with_different_metrics_are_not_compared():
    accurate = [dense(0, 0.9, conditions={"metric": "accuracy"})]
    other = nats("cs", 0, 0.5, 1.4, conditions={"metric": "loss"})
    first, second = comparisons([*accurate, other])
    assert first.dense is not None and not first.series
    assert second.dense is None and second.metric == NATS
    assert [report.title for report in (first, second)] == ["t, metric accuracy", "t, metric loss"]


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
    assert "No imp subnetwork matches it." in verdict(report)
