"""Many methods with equally many weights, one below the other."""

import pytest

from prunus.report.charts import series_order
from prunus.report.model import comparisons
from prunus.report.pictures import pictures
from prunus.report.ranking import rankings
from prunus.report.tables import scaled
from prunus.tasks.metrics import MetricInfo
from support.made_records import dense, measured, record, seeds

DENSE = [dense(0, 0.90), dense(1, 0.92)]


def at(target, **values):
    """Rows that end at a target density, a value for each seed."""
    made = [
        seeds(row, target, own, run=str(target), settings={"method": {"target_density": target}})
        for row, own in values.items()
    ]
    return [record for own in made for record in own]


FIVE = at(0.05, mp=(0.80, 0.81), cs=(0.88, 0.89), random=(0.5, 0.6), gmp=(0.86, 0.88))
TWO = at(0.02, mp=(0.70, 0.71), cs=(0.78, 0.79))


def test_the_best_is_first_and_two_methods_are_no_ranking():
    [report] = comparisons([*DENSE, *FIVE, *TWO])
    assert [(own.target, list(own.entries)) for own in rankings(report)] == [
        (0.05, ["mp", "cs", "random", "gmp"])
    ]


def test_the_best_is_the_lowest_where_lower_is_better():
    nats = MetricInfo("loss", higher_is_better=False, unit="nats")
    made = [
        record(row, seed, 0.1, None, metrics=(nats,),
               measured={"re-trained": measured(value + 0.1 * seed, "loss")})
        for row, value in (("a", 3.0), ("b", 1.0), ("c", 2.0), ("d", 4.0))
        for seed in (0, 1)
    ]  # fmt: skip
    [report] = comparisons(made)
    first = pictures(report)[0]
    assert "Left is better" in first.caption
    chart = first.chart(series_order([report]), 640).to_dict()
    rows = chart["data"]["values"]  # of all layers: there is no dense network
    assert [row["method"] for row in rows] == ["b", "c", "a", "d"]


def test_what_a_ranking_shows():
    [report] = comparisons([*DENSE, *FIVE])
    first, second = pictures(report)
    assert (first.name, second.name) == ("methods at 5 %", "weights kept")
    chart = first.chart(series_order([report]), 640).to_dict()
    rows = chart["layer"][-1]["data"]["values"]
    assert [(row["method"], row["value"], row["reached"]) for row in rows[:2]] == [
        ("cs", pytest.approx(88.5), "88.50±6.35"),  # 0.5 * 12.7062
        ("gmp", pytest.approx(87.0), "87.00±12.71"),
    ]
    # mp is 8 points behind cs with both seeds, gmp 2 and 1, random 38 and 29
    assert [row["fill"] == "white" for row in rows] == [False, False, True, False]
    assert rows[0]["colour"] == "#8e4fb5" and rows[3]["colour"] == "#8c6d46"
    numbers = [report.points[row["point"]].series.name for row in rows]
    assert numbers == ["cs", "gmp", "mp", "random"], "what a click opens"
    low, high = chart["layer"][-1]["encoding"]["x"]["scale"]["domain"]
    ends = [scaled(report.metric, end) for p in report.points
            for end in (p.value.estimate.low, p.value.estimate.high)]  # fmt: skip
    assert low <= max(0, min(ends)) and high == 100 <= max(ends)
    assert "A hollow circle" in first.caption and "over seeds" in first.caption


def test_who_does_not_compete_is_shown_with_its_density():
    other = seeds("str", 0.06, (0.95, 0.96))
    [report] = comparisons([*DENSE, *FIVE, *other])
    first = pictures(report)[0]
    rows = first.chart(series_order([report]), 640).to_dict()["layer"][-1]["data"]["values"]
    assert [row["method"] for row in rows] == ["str (at 6.00 %)", "cs", "gmp", "mp", "random"]
    assert rows[1]["fill"] != "white", "not behind it"
    assert "does not compete" in first.caption


def test_curves_come_first_where_a_ranking_has_but_a_few_of_the_points():
    others = [seeds("cs", d, (0.8, 0.8), run=str(d)) for d in (0.5, 0.4, 0.3, 0.2, 0.1)]
    [report] = comparisons([*DENSE, *FIVE, *(r for own in others for r in own)])
    assert [picture.name for picture in pictures(report)] == ["weights kept", "methods at 5 %"]
    [few] = comparisons([*DENSE, *TWO])
    assert [picture.name for picture in pictures(few)] == ["weights kept"]


def test_an_axis_of_densities_does_not_stretch_what_is_close_together():
    [report] = comparisons([*DENSE, *at(0.05, cs=(0.8, 0.8)), *at(0.051, mp=(0.8, 0.8))])
    [only] = pictures(report)
    chart = only.chart(series_order([report]), 640).to_dict()
    low, high = chart["layer"][-1]["encoding"]["x"]["scale"]["domain"]
    assert high / low == pytest.approx(2) and low < 5 < 5.1 < high
    [wide] = comparisons([*DENSE, *FIVE, *TWO])
    by_density = next(p for p in pictures(wide) if p.name == "weights kept")
    chart = by_density.chart(series_order([wide]), 640).to_dict()
    assert "domain" not in chart["layer"][-1]["encoding"]["x"]["scale"], "the data's own"
