"""What is claimed of numbers, and what is not: matching, leads, and the sentences about them."""

from dataclasses import replace

import pytest

from prunus.report.competition import competitions
from prunus.report.export import flat
from prunus.report.findings import details, finding, notes
from prunus.report.model import comparisons
from prunus.report.panel import describe
from prunus.report.paper import Paper, figure_table, pairs, pairs_table
from prunus.report.select import picks
from prunus.report.tables import (
    Strong,
    density_table,
    points_table,
    raw_table,
    selection_table,
)
from support.made_records import dense, measured, record, seeds
from support.made_runs import NATS

DENSE = [dense(seed, value) for seed, value in enumerate((0.90, 0.91, 0.92))]


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((0.90, 0.91, 0.92), "yes"),  # the same in every seed
        ((0.897, 0.907, 0.917), "yes"),  # always 0.3 points worse
        ((0.894, 0.904, 0.914), "no"),  # always 0.6
        ((0.898, 0.91, 0.922), "yes"),  # -0.2, 0, 0.2: +-0.497
        ((0.897, 0.91, 0.923), "open"),  # -0.3, 0, 0.3: +-0.745
        ((0.886, 0.90, 0.914), "open"),  # -1.4, -1, -0.6: +-0.994
        ((0.888, 0.90, 0.912), "no"),  # -1.2, -1, -0.8: +-0.497
    ],
)
def test_matching_is_about_the_interval_of_the_paired_difference(values, verdict):
    (report,) = comparisons([*DENSE, *seeds("cs", 0.1, values)])
    assert points_table(report).rows[1][-1] == verdict
    assert (picks(report)[0][2] is not None) == (verdict == "yes")


def test_one_seed_has_the_binomial_error_and_no_lead():
    def one(value):
        return {"re-trained": measured(value, samples=10_000)}

    base = dense(0, 0.9)
    base = replace(base, measured={"trained": measured(0.9, samples=10_000)})
    made = [base, record("cs", 0, 0.1, None, measured=one(0.91)),
            record("imp", 0, 0.1, None, measured=one(0.7))]  # fmt: skip
    (report,) = comparisons(made)
    table = points_table(report)
    # Wilson: 0.91 - 0.9042 and 0.9 - 0.8940; Newcombe's difference is +1.00, from 0.19 to 1.81.
    assert table.rows[1][4:6] == ["91.00±0.58", "+1.00±0.81"] and table.rows[1][-1] == "yes"
    [held] = competitions(report)
    assert not any(e.ahead_of or e.behind for e in held.entries.values())
    assert any("There is one seed" in text for text in notes(report))


# With equally many weights


def row(name, target, density, values):
    settings = {"method": {"name": name, "target_density": target}}
    return seeds(name, density, values, run=str(target), settings=settings)


def entries(*rows):
    (report,) = comparisons([*DENSE, *(r for own in rows for r in own)])
    return report, {own.target: own for own in competitions(report)}


def test_a_lead_needs_a_paired_difference_that_excludes_zero():
    report, found = entries(
        row("cs", 0.1, 0.1, (0.90, 0.92, 0.94)),
        row("gmp", 0.1, 0.102, (0.89, 0.909, 0.931)),  # 1.0, 1.1 and 0.9 points behind
        row("cs", 0.05, 0.05, (0.90, 0.92, 0.94)),
        row("gmp", 0.05, 0.05, (0.89, 0.93, 0.90)),  # 1, -1 and 4
    )
    leaders = {t: [row for row in own.entries if own.leads(row)] for t, own in found.items()}
    assert leaders == {0.1: ["cs"], 0.05: []}
    assert {row: e.behind for row, e in found[0.1].entries.items()} == {"cs": (), "gmp": ("cs",)}
    table = density_table(report)
    assert table.header == ["accuracy % with", "10 % kept", "5 % kept"]
    strong = [[isinstance(cell, Strong) for cell in line] for line in table.rows]
    assert strong == [[False, True, False], [False, False, False]]
    assert str(table).splitlines()[1].split()[1] == "*92.00±4.97"
    assert finding(report).startswith(
        "With equally many weights, cs leads gmp at 10 %; the rest is within the error. "
        "No subnetwork was shown to match "
    )
    assert not any("leads" in sentence for sentence in details(report)), "it is said once"


def test_who_is_behind_where_nobody_leads_all():
    report, found = entries(
        row("cs", 0.1, 0.1, (0.90, 0.92, 0.94)),
        row("imp", 0.1, 0.1, (0.90, 0.921, 0.939)),
        row("mp", 0.1, 0.1, (0.80, 0.82, 0.84)),
        row("cs", 0.05, 0.05, (0.90, 0.92, 0.94)),
        row("imp", 0.05, 0.05, (0.80, 0.82, 0.84)),
        row("mp", 0.05, 0.05, (0.70, 0.72, 0.74)),
    )
    assert {row: (e.ahead_of, e.behind) for row, e in found[0.1].entries.items()} == {
        "cs": (("mp",), ()), "imp": (("mp",), ()), "mp": ((), ("cs", "imp")),
    }  # fmt: skip
    assert finding(report).startswith(
        "With equally many weights, cs and imp lead mp at 10 %; cs leads all others at 5 %; the "
        "rest is within the error. "
    )
    report, _ = entries(row("cs", 0.1, 0.1, (0.9, 0.9, 0.9)), row("mp", 0.1, 0.1, (0.8, 1, 0.9)))
    assert "With equally many weights, no method leads another." in details(report)


def test_too_dense_and_too_sparse_are_marked_and_do_not_compete():
    report, found = entries(
        row("cs", 0.1, 0.1, (0.90, 0.91, 0.92)),
        row("a", 0.1, 0.1031, (0.95, 0.96, 0.97)),
        row("b", 0.1, 0.0969, (0.80, 0.81, 0.82)),
        row("c", 0.1, 0.0971, (0.85, 0.86, 0.87)),
        row("d", 0.1, 0.2, (0.85, 0.86, 0.87)),
    )
    assert {n: e.competes for n, e in found[0.1].entries.items()} == {
        "cs": True, "a": False, "b": False, "c": True,
    }  # fmt: skip
    assert found[0.1].leads("cs"), "over c, the only one that competes"
    cells = {line[0]: line[1] for line in density_table(report).rows}
    assert cells["a"].endswith(" (at 10.31 %)") and cells["b"].endswith(" (at 9.69 %)")
    assert "(at" not in cells["c"] and "d" not in cells


def test_fine_tuned_and_re_trained_networks_do_not_compete():
    values = {"cs": ((0.88, 0.89), (0.90, 0.91)), "mp": ((0.80, 0.81), (0.92, 0.93))}
    made = [
        record(row, seed, 0.1, None, command="prune",
               settings={"method": {"target_density": 0.1}},
               measured={"fine-tuned": measured(tuned[seed]), "re-trained": measured(alone[seed])})
        for row, (tuned, alone) in values.items()
        for seed in (0, 1)
    ]  # fmt: skip
    [report] = comparisons([*DENSE, *made])
    held = {own.measure: own for own in competitions(report)}
    assert [m for m in held if held[m].leads("cs")] == ["fine-tuned"]
    assert [m for m in held if held[m].leads("mp")] == ["re-trained"]
    assert ("cs leads mp at 10 % (fine-tuned); mp leads cs at 10 % (re-trained).") in " ".join(
        [finding(report), *details(report)]
    )
    strong = {row[0]: isinstance(row[1], Strong) for row in density_table(report).rows}
    assert strong == {
        "cs, fine-tuned": True, "cs, re-trained": False,
        "mp, fine-tuned": False, "mp, re-trained": True,
    }  # fmt: skip


def test_without_targets_densities_at_which_two_rows_meet_are_compared():
    made = [*seeds("cs", 0.1, (0.90, 0.91, 0.92)), *seeds("cs", 0.02, (0.8, 0.8, 0.8), run="b"),
            *seeds("imp", 0.101, (0.9, 0.9, 0.9))]  # fmt: skip
    assert list(entries(made)[1]) == [pytest.approx(0.1)]


def test_findings_name_who_matches_and_who_does_not():
    made = [*DENSE, *seeds("cs", 0.1, (0.91, 0.92, 0.93)), *seeds("imp", 0.102, (0.9, 0.91, 0.92)),
            *seeds("mp", 0.3, (0.9, 0.91, 0.92)), *seeds("l0", 0.3, (0.5, 0.5, 0.5))]  # fmt: skip
    (report,) = comparisons(made)
    assert finding(report) == (
        "cs and imp match the dense network (91.00±2.48 %) with 10.00 % of the weights; mp needs "
        "30.00 %, l0 was not shown to."
    )
    first = details(report)[0]
    assert first.startswith("Picked on validation data; on test data ")
    assert "points: cs +1.00±0.00, imp +0.00±0.00, mp +0.00±0.00." in first
    (report,) = comparisons([*DENSE, *seeds("l0", 0.3, (0.5, 0.5, 0.5))])
    assert finding(report) == (
        "No subnetwork was shown to match the dense network (91.00±2.48 %) within 0.5 points."
    )


# A language model: lower is better, and the unit is not per cent.


def nats(row, seed, density, value, **changes):
    own = {"metrics": (NATS,), "measured": {"re-trained": measured(value, "loss")}}
    return record(row, seed, density, None, **{**own, **changes})


LANGUAGE = [
    *(
        nats("dense", n, 1.0, 1.5, command="train", measured={"trained": measured(1.5, "loss")})
        for n in (0, 1)
    ),
    *(
        nats("cs", seed, density, loss, number=number)
        for number, (density, loss) in enumerate(
            # Better; just within 0.5 % of 1.5, and outside; exactly 2 % worse; and worse still
            [(0.5, 1.45), (0.3, 1.507), (0.2, 1.508), (0.1, 1.53), (0.05, 1.60)], 1
        )
        for seed in (0, 1)
    ),
]  # fmt: skip


def test_lower_is_better_for_a_loss():
    (report,) = comparisons(LANGUAGE)
    found = {rule: point.density.mean for rule, _, point in picks(report)}
    assert found == {"sparsest matching": 0.3, "best performing": 0.5, "sparsest within 2 %": 0.1}


def test_tables_show_the_metric_and_its_unit():
    (report,) = comparisons(LANGUAGE)
    table = selection_table(report)
    assert table.header[4:6] == ["kept %", "loss (nats)"]
    assert table.rows[0][5] == "1.5000±0.0000"
    assert table.rows[1][4:7] == ["30.00±0.00", "1.5070±0.0000", "-0.0070±0.0000"]
    table = points_table(report)
    assert table.header == ["method", "settings", "stage", "kept %", "re-trained (nats)",
                            "against dense", "epochs", "matching on validation"]  # fmt: skip
    assert [row[-1] for row in table.rows] == ["", "yes", "yes", "no", "no", "no"]
    assert finding(report) == (
        "cs matches the dense network (1.5000±0.0000 nats) with 30.00 % of the weights."
    )
    assert "is above -0.5 % on validation data." in " ".join(notes(report))


def sized(row, seed, density, network_density):
    stage = measured(0.9).model_copy(
        update={"density": density, "network_density": network_density}
    )
    return record(row, seed, density, None, measured={"re-trained": stage})


def test_tables_also_have_the_density_of_the_whole_network():
    (report,) = comparisons([*DENSE, sized("cs", 0, 0.1, 0.2), sized("imp", 0, 0.1, 0.3)])
    tables = (points_table(report), selection_table(report), raw_table([report]))
    for table in tables:
        place = table.header.index("kept %")
        assert table.header[place + 1] == "of all weights %"
        sizes = [row[place : place + 2] for row in table.rows if row[place] != "none"]
        found = list(dict.fromkeys(map(tuple, sizes)))  # the dense network once a seed, where raw
        assert found == [("100.00", "100.00"), ("10.00", "20.00"), ("10.00", "30.00")]
    assert {row["network_density"] for row in flat([report])} == {None, 0.2, 0.3}
    assert not any("could be removed" in text for text in notes(report))
    assert density_table(report).header[1] == "10 % kept, 20 to 30 % of all weights"
    figure = figure_table([report])
    assert [row[5:7] for row in figure.rows] == [["10.00", "20.00"], ["10.00", "30.00"]]
    assert figure.header[5:7] == ["kept %", "of all weights %"]
    numbers = [{"row": "imp", "pick": "nearest", "kept": 9.0}, {"pick": "dense"}]
    paper = Paper.parse({"where": "here", "numbers": [{"task": "t", **n} for n in numbers]})
    found = pairs_table(pairs(paper, [report]))
    assert found.header[7:9] == ["kept %", "of all weights %"]
    assert [row[7:9] for row in found.rows] == [["10.00", "30.00"], ["100.00", "100.00"]]
    facts = dict(describe(report.points[0].records[0])["facts"])
    assert (facts["weights kept"], facts["of all weights"]) == ("10.00%", "20.00%")


def test_a_mask_over_little_of_the_network_is_told():
    (report,) = comparisons([*DENSE, sized("cs", 0, 0.1, 0.2), sized("imp", 0, 0.1, 0.97)])
    assert (
        "Only 3.33% of the network's weights could be removed, and what is kept counts no others: "
        "--select all takes them all." in notes(report)
    )


def test_networks_with_different_metrics_are_not_compared():
    accurate = [dense(0, 0.9, conditions={"metric": "accuracy"})]
    other = nats("cs", 0, 0.5, 1.4, conditions={"metric": "loss"})
    first, second = comparisons([*accurate, other])
    assert first.dense is not None and not first.series
    assert second.dense is None and second.metric == NATS
    assert [report.title for report in (first, second)] == ["t, metric accuracy", "t, metric loss"]


def test_a_dense_network_alone():
    """Nothing has failed to match it: there is nothing yet."""
    [report] = comparisons([dense(0, 0.9), dense(1, 0.9)])
    assert finding(report) == (
        "There is no subnetwork yet to compare with the dense network (90.00±0.00 %)."
    )
    assert details(report) == []
