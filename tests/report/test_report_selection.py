"""The paper's selections and their cost, worked out by hand."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunus.report.curves import points
from prunus.report.runs import Accuracy, Record
from prunus.report.selection import Cost, dense_accuracy, lines, select, whole_cost
from prunus.report.summary import Spread
from prunus.report.tables import cost_table, selection_table, task_reports


def record(row, seed, density, accuracy, *, number=1, run="a", epochs=10, **changes):
    values = {
        "task": "t", "row": row, "command": "search", "method": row, "parameters": {"run": run},
        "seed": seed, "folder": Path(f"{row}-{run}-{seed}"), "stage": f"round {number}",
        "round": number, "density": density, "epochs": epochs * number,
        "accuracies": {"re-trained": Accuracy(None, accuracy)},
    }  # fmt: skip
    return Record(**{**values, **changes})


def dense(seed, accuracy):
    return record("dense", seed, 1.0, None, command="train", method=None,
                  accuracies={"trained": Accuracy(None, accuracy)})  # fmt: skip


RECORDS = [
    dense(0, 0.90),
    dense(1, 0.92),  # 0.91 on average
    record("cs", 0, 0.5, 0.93, number=1, run="a"),
    record("cs", 0, 0.2, 0.91, number=2, run="a"),  # exactly as good
    record("cs", 0, 0.3, 0.94, number=1, run="b"),
    record("cs", 0, 0.1, 0.90, number=2, run="b"),
    record("cs", 1, 0.4, 0.92, number=1, run="a"),
    record("cs", 1, 0.2, 0.88, number=2, run="a"),  # more than 2 % below
    record("imp", 0, 0.8, 0.90, number=1),
    record("imp", 0, 0.6, 0.89, number=2),  # exactly 2 % below
    record("imp", 0, 0.5, 0.80, number=3),
]


def chosen(row, rule):
    line = next(line for line in lines(RECORDS) if line.row == row)
    return select(line, dense_accuracy(RECORDS, "t").mean)[rule]


def test_dense():
    assert dense_accuracy(RECORDS, "t").mean == pytest.approx(0.91)
    assert dense_accuracy(RECORDS, "other") is None


def test_sparsest_matching():
    found = chosen("cs", "sparsest matching")
    assert {seed: (r.density, r.round) for seed, r in found.picks.items()} == {
        0: (0.2, 2),
        1: (0.4, 1),
    }
    assert found.density.mean == pytest.approx(0.3)
    assert found.density.deviation == pytest.approx(0.02**0.5)  # of 0.2 and 0.4
    assert found.accuracy.mean == pytest.approx(0.915)
    assert found.rounds == [1, 2]
    assert chosen("imp", "sparsest matching") is None


def test_best_performing():
    found = chosen("cs", "best performing")
    assert [r.density for r in found.picks.values()] == [0.3, 0.4]
    assert chosen("imp", "best performing").picks[0].density == 0.8


def test_within_2_percent_of_dense():
    assert [r.density for r in chosen("cs", "sparsest within 2 %").picks.values()] == [0.1, 0.4]
    assert chosen("imp", "sparsest within 2 %").picks[0].density == 0.6


def test_cost():
    # Seed 0: two runs of two rounds of ten epochs; seed 1: one run, of which one round is needed.
    assert chosen("cs", "sparsest matching").cost == Cost((40 + 10) / 2, (20 + 10) / 2)
    # IMP needs its rounds one after the other, however many workers there are.
    assert chosen("imp", "sparsest within 2 %").cost == Cost(20, 20)
    cs, imp = lines(RECORDS)
    assert whole_cost(cs) == Cost((40 + 20) / 2, 20)
    assert whole_cost(imp) == Cost(30, 30)


def test_the_papers_own_count():
    """Section 5.1: 4675 and 425 epochs for CS, 2550 for IMP."""
    cs = [record("cs", 0, 0.1, 0.9, number=n, run=str(i), epochs=85)
          for i in range(11) for n in range(1, 6)]  # fmt: skip
    imp = [record("imp", 0, 0.1, 0.9, number=n, epochs=85) for n in range(1, 31)]
    ours, theirs = lines([*cs, *imp])
    assert whole_cost(ours) == Cost(4675, 425)
    assert whole_cost(theirs) == Cost(2550, 2550)


def test_without_a_dense_network_only_the_best_can_be_told():
    (line,) = lines([record("cs", 0, 0.5, 0.9)])
    found = select(line, None)
    assert found["best performing"] is not None
    assert found["sparsest matching"] is None and found["sparsest within 2 %"] is None


def test_measures_are_not_mixed():
    searched = {"searched": Accuracy(None, 0.99)}
    waiting = record("cs", 0, 0.1, None, number=2, accuracies=searched)
    (line,) = lines([record("cs", 0, 0.5, 0.9), waiting])
    assert line.measure == "re-trained" and len(line.records) == 1, "the other waits"
    (line,) = lines([waiting])
    assert line.measure == "searched"
    tuned = record("cs", 0, 0.3, None, command="prune",
                   accuracies={"fine-tuned": Accuracy(None, 0.9)})  # fmt: skip
    assert [n.label for n in lines([record("cs", 0, 0.5, 0.9), tuned])] == [
        "cs, re-trained",
        "cs, fine-tuned",
    ]


def test_validation_counts_where_there_are_no_test_images():
    assert Accuracy(0.7, None).value == 0.7 and Accuracy(0.7, 0.6).value == 0.6


def test_points_and_the_curve_that_connects_them():
    cs, imp = lines(RECORDS)
    found = points(cs)
    assert [(p.parameters["run"], p.stage, p.on_curve) for p in found] == [
        ("a", "round 1", False),
        ("a", "round 2", True),
        ("b", "round 1", False),
        ("b", "round 2", True),
    ]
    assert found[0].density == Spread.of([0.5, 0.4]) and len(found[0].records) == 2
    assert [p.on_curve for p in points(imp)] == [True] * 3, "one run is itself the curve"


def test_tables():
    (report,) = task_reports(RECORDS)
    rows = selection_table(report).rows
    assert rows[0][:6] == ["dense", "", "trained", "", "100.00", "91.00±1.41"]
    assert rows[1] == ["sparsest matching", "cs", "re-trained", "1-2", "30.00±14.14",
                       "91.50±0.71", "2/2", "25", "15", "run a"]  # fmt: skip
    assert rows[2] == ["sparsest matching", "imp", "re-trained", "", "none", "", "0/1", "", "", ""]
    assert rows[4][4:6] == ["80.00", "90.00"], "one seed has no deviation"
    assert cost_table(report).rows == [["cs", "3", "30", "20"], ["imp", "3", "30", "30"]]


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1), st.floats(0, 1))
def test_rules_hold_for_any_records(values, bar):
    made = [record("cs", 0, d, a, number=i) for i, (d, a) in enumerate(values, 1)]
    (line,) = lines(made)
    found = select(line, bar)
    best = found["best performing"]
    assert best.accuracy.mean == max(a for _, a in values)
    for rule, least in (("sparsest matching", bar), ("sparsest within 2 %", bar - 0.02)):
        good = [d for d, a in values if a >= least - 1e-9]
        assert (found[rule].density.mean if found[rule] else None) == (min(good) if good else None)
    if found["sparsest matching"]:
        within = found["sparsest within 2 %"]
        assert within.density.mean <= found["sparsest matching"].density.mean
