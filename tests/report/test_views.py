"""The second view of the same runs: the metric against measured speed."""

import pytest

from prunus.report.charts import metric_chart, series_order
from prunus.report.model import comparisons
from prunus.report.speeds import speed_of, speed_text
from prunus.report.tables import points_table
from prunus.report.views import by_speed, views
from prunus.runs.speed import Speed
from support.made_records import dense, record


def speeds(*deployed):
    """With batches of 1 and 128; the dense network does 100 and 1000."""
    pairs = zip((1, 128), deployed, (100, 1000), strict=False)
    return tuple(
        Speed(batch=b, threads=2, deployed=d, dense=of_dense, engine="ONNX Runtime", processor="p")
        for b, d, of_dense in pairs
    )


@pytest.fixture
def report():
    """Two networks that match, one that does not, and one that was not measured."""
    networks = [
        ("cs", "a", 0.2, 0.901, speeds(200, 3000)),
        ("cs", "b", 0.1, 0.900, speeds(400, 5000)),
        ("cs", "c", 0.01, 0.5, speeds(900, 9000)),
        ("gmp", "a", 0.05, 0.9, ()),
    ]
    found = [
        record(row, seed, density, value, run=run, speeds=of)
        for row, run, density, value, of in networks
        for seed in (0, 1)
    ]
    [made] = comparisons([dense(0, 0.9), dense(1, 0.9), *found])
    return made


def test_one_view_by_density_and_one_for_each_batch(report):
    names = [view.name for view in views(report)]
    assert names == ["weights kept", "images a second, batch of 1", "images a second, batch of 128"]
    [alone] = comparisons([dense(0, 0.9), record("cs", 0, 0.5, 0.9)])
    assert [view.name for view in views(alone)] == ["weights kept"]


def test_points_are_where_their_speed_is(report):
    view = by_speed(report, 128)
    assert [view.at(point) for point in report.points] == [3000, 5000, 9000, None]
    assert (view.dense_at, view.dense_name) == (1000, "dense in ONNX Runtime")
    assert list(view.winners.values()) == ["cs matches at 5,000/s"], "the fastest that matches"
    chart = metric_chart(report, series_order([report]), view=view).to_dict()
    last = chart["layer"][-1]
    assert [row["at"] for row in last["data"]["values"]] == [3000, 5000, 9000]
    x = last["encoding"]["x"]
    assert x["scale"]["type"] == "log" and x["title"].startswith("images a second, batch of 128")
    places = [layer["data"]["values"][0].get("at") for layer in chart["layer"]]
    assert 1000 in places, "the dense network"


def test_a_speed_is_shown_only_if_all_seeds_have_it(report):
    first, *_, unmeasured = report.points
    assert speed_of(first, 1).mean == 200 and speed_text(first, 1) == "200 (2.0x)"
    assert speed_of(unmeasured, 1) is None and speed_text(unmeasured, 1) == ""
    half = [record("cs", seed, 0.5, 0.9, speeds=speeds(5) if seed else ()) for seed in (0, 1)]
    [made] = comparisons([dense(0, 0.9), dense(1, 0.9), *half])
    assert speed_of(made.points[0], 1) is None


def test_speeds_stand_in_the_table_of_all_points(report):
    table = points_table(report, sizes=True)
    column = table.header.index("images/s, batch 128")
    assert [row[column] for row in table.rows] == [
        "", "3,000 (3.0x)", "", "5,000 (5.0x)", "9,000 (9.0x)",
    ]  # fmt: skip
    assert not any(name.startswith("images/s") for name in points_table(report).header)
