"""The plots, as specifications."""

import json

import pytest

from prunus.report.charts import limits, metric_chart, series_order
from prunus.report.model import comparisons
from prunus.report.records import read_runs
from support.made_records import dense, seeds


def test_chart_has_every_layer_of_the_papers_figure(folder):
    (report,) = comparisons(read_runs(folder).records)
    chart = metric_chart(report, series_order([report])).to_dict()
    text = json.dumps(chart)
    assert "cs: single runs" in text and "imp: single runs" not in text
    colour = next(x["encoding"]["color"] for x in chart["layer"] if "color" in x["encoding"])
    assert colour["scale"]["domain"] == [
        "cs", "imp", "cs: single runs", "dense network: 90.40±1.27 %",
    ]  # fmt: skip
    assert colour["scale"]["range"] == ["#8e4fb5", "#0072b2", "#8e4fb5", "#7a808c"]
    winners = [row for row in chart["layer"][-1]["data"]["values"] if row["winner"]]
    assert [row["winner"] for row in winners] == ["cs matches with 4.35 %"]
    low, high = chart["layer"][-1]["encoding"]["y"]["scale"]["domain"]
    assert low < 89 and high > 93, "the error bars"


def test_the_axis_does_not_make_noise_look_large():
    (report,) = comparisons([dense(0, 0.9), dense(1, 0.9), *seeds("cs", 0.5, (0.901, 0.901))])
    assert limits(report, report.points) == pytest.approx([90.05 - 2.5, 90.05 + 2.5])
    (report,) = comparisons([dense(0, 1.0), dense(1, 1.0), *seeds("cs", 0.5, (0.0, 0.0))])
    assert limits(report, report.points) == [0, 100]


def test_a_method_has_one_colour_and_controls_another(runs):
    for seed in (0, 1):
        for number, method in enumerate(("gmp", "mine:Method", "cs")):
            folder = runs.search(method, seed, [(0.5 / (number + 1), 0.8)])
            runs.retrain(folder, 1, 0.9)
        runs.retrain(folder, 1, 0.7, control="shuffled")
    (report,) = comparisons(read_runs(runs.root).records)
    chart = metric_chart(report, series_order([report])).to_dict()
    scale = next(x["encoding"]["color"] for x in chart["layer"] if "color" in x["encoding"])[
        "scale"
    ]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {
        "cs": "#8e4fb5", "gmp": "#009e73", "mine:Method": "#44aa99", "cs, shuffled": "#8c6d46",
    }  # fmt: skip
