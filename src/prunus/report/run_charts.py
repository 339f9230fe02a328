"""The plots of runs, as Altair charts: one specification for the page, PNG, PDF and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt

from prunus.report.comparison import Comparison
from prunus.report.curves import Point, points
from prunus.report.parameters import as_text
from prunus.report.tables import spread

# Okabe and Ito's, told apart with any kind of colour vision, then darker ones of Paul Tol's. The
# numbers of colours, shapes and dashes have no common factor, so that many lines differ in at least
# one of them.
_COLOURS = ["#009e73", "#0072b2", "#d55e00", "#e69f00", "#56b4e9"]
_COLOURS += ["#332288", "#999933", "#882255", "#661100"]
_SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"]
_DASHES = [[1, 0], [8, 3], [2, 2], [8, 3, 2, 3]]
_PURPLE = "#b565a0"
_GREY = "#7a808c"
_BAR = "M-1,-0.15H1V0.15H-1Z"  # a line, as a shape that is filled like the others

Width = int | Literal["container"]


def accuracy_against_density(
    report: Comparison, order: Sequence[str], width: Width = 640
) -> alt.LayerChart:
    """Accuracy against density of all methods on a task, and the dense network as a line.

    `order` has the labels of all tasks: the same method looks the same on each. Points of the data
    carry their number among `task_points` as `point`.
    """
    rows = [_row(number, point) for number, point in enumerate(task_points(report))]
    rows = [row for row in rows if row["density"] > 0]  # the axis is logarithmic
    single = [{**r, "method": _single(r["method"])} for r in rows if r["single"]]
    singles = list(dict.fromkeys(row["method"] for row in single))
    labels = [label for label in order if any(row["method"] == label for row in rows)]
    domain = [*labels, *singles]
    look = {label: i for i, label in enumerate(order)}
    methods = {row["method"]: row["of"] for row in rows}
    colours = [_COLOURS[look[n] % len(_COLOURS)] for n in labels]
    shapes = [_SHAPES[look[n] % len(_SHAPES)] for n in labels]
    dashes = [_DASHES[look[n] % len(_DASHES)] for n in labels]
    for label in labels:
        if _single(label) in singles:
            colours.append(_PURPLE if methods[label] == "cs" else colours[labels.index(label)])
            shapes.append(shapes[labels.index(label)])
            dashes.append([1, 0])
    if report.dense is not None:
        domain.append(f"dense network: {spread(report.dense, report.dense_seeds)} %")
        colours.append(_GREY)
        shapes.append(_BAR)
        dashes.append([6, 4])

    def scale(values: Sequence[Any]) -> alt.Scale:
        return alt.Scale(domain=domain, range=list(values))

    legend = alt.Legend(
        orient="top", title=None, columns=4, labelLimit=300, symbolOpacity=1, symbolStrokeWidth=0
    )
    x = alt.X(
        "density:Q",
        title="weights kept (%, logarithmic)",
        scale=alt.Scale(type="log", nice=False, padding=20),
        axis=alt.Axis(
            values=[m * 10.0**e for e in range(-3, 2) for m in (1, 2, 5)] + [100.0], format="~g"
        ),
    )
    y = alt.Y("accuracy:Q", title="accuracy (%)", scale=alt.Scale(zero=False))
    colour = alt.Color("method:N", scale=scale(colours), legend=legend)
    shape = alt.Shape("method:N", scale=scale(shapes), legend=legend)
    dash = alt.StrokeDash("method:N", scale=scale(dashes), legend=legend)
    curve = alt.Chart(_data([r for r in rows if r["curve"]])).encode(x=x, color=colour)
    runs = alt.Chart(_data(single)).encode(x=x, y=y, color=colour)
    layers: list[Any] = []
    if single:
        layers += [
            runs.mark_line(strokeWidth=1, aria=False).encode(detail="run:N", order="step:Q"),
            runs.mark_point(size=22, filled=True, aria=False).encode(shape=shape),
        ]
    layers += [
        curve.mark_rule(strokeWidth=1.5, aria=False).encode(y=alt.Y("low:Q"), y2="high:Q"),
        curve.mark_line(strokeWidth=2.5, aria=False).encode(y=y, order="order:Q", strokeDash=dash),
        curve.mark_point(size=80, filled=True, opacity=1, aria=False).encode(y=y, shape=shape),
    ]
    if report.dense is not None:
        line = alt.Chart(_data([{"accuracy": 100 * report.dense.mean, "method": domain[-1]}]))
        layers.append(
            line.mark_rule(strokeWidth=2, aria=False).encode(y=y, color=colour, strokeDash=dash)
        )
    # Unseen and large, so that a finger hits them; their outline is seen when the keyboard does.
    layers.append(
        alt.Chart(_data(rows))
        .mark_point(size=400, filled=True, fillOpacity=0, strokeOpacity=0, cursor="pointer")
        .encode(
            x=x,
            y=y,
            description="text:N",
            tooltip=[
                alt.Tooltip("method:N"),
                alt.Tooltip("settings:N"),
                alt.Tooltip("stage:N"),
                alt.Tooltip("kept:N", title="weights kept (%)"),
                alt.Tooltip("reached:N", title="accuracy (%)"),
                alt.Tooltip("seeds:Q"),
            ],
        )
    )
    chart: alt.LayerChart = _readable(alt.layer(*layers).properties(width=width, height=380))
    return chart


def task_points(report: Comparison) -> list[Point]:
    """The points of all lines of a task."""
    return [point for line in report.lines for point in points(line)]


def label_order(reports: Sequence[Comparison]) -> list[str]:
    """The labels of all lines of all tasks, CS first: it is what the others are compared with."""
    lines = [line for report in reports for line in report.lines]
    return list(dict.fromkeys(n.label for n in sorted(lines, key=lambda n: n.method != "cs")))


def curve_chart(field: str, title: str) -> dict[str, Any]:
    """A training curve whose data, `rows` of `part`, `at` and `field`, the page puts in."""
    chart = (
        alt.Chart(alt.NamedData("rows"), width="container", height=150)
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=14))
        .encode(
            x=alt.X("at:Q", title="epoch", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y(f"{field}:Q", title=title, scale=alt.Scale(zero=field != "accuracy")),
            color=alt.Color(
                "part:N",
                title=None,
                legend=alt.Legend(orient="top"),
                scale=alt.Scale(domain=["search", "re-training"], range=[_PURPLE, _COLOURS[0]]),
            ),
            detail="phase:N",
            tooltip=["part:N", "phase:N", alt.Tooltip("at:Q", title="epoch"), f"{field}:Q"],
        )
    )
    return _specification(chart)


def density_chart(title: str) -> dict[str, Any]:
    """Horizontal bars, of `rows` with `name` and `kept`; the page knows how high it becomes."""
    chart = (
        alt.Chart(alt.NamedData("rows"), width="container")
        .mark_bar(color=_COLOURS[0])
        .encode(
            y=alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=160)),
            x=alt.X("kept:Q", title=title),
            tooltip=["name:N", "kept:Q", "weights:N", "shape:N"],
        )
    )
    return _specification(chart)


def _specification(chart: alt.Chart) -> dict[str, Any]:
    specification: dict[str, Any] = _readable(chart).to_dict()
    return specification


def _readable(chart: Any) -> Any:
    size = 12
    return chart.configure_axis(labelFontSize=size, titleFontSize=size).configure_legend(
        labelFontSize=size
    )


def _row(number: int, point: Point) -> dict[str, Any]:
    line, seeds = point.line, len(point.records)
    mean, deviation = 100 * point.accuracy.mean, 100 * point.accuracy.deviation
    settings = as_text(point.parameters)
    kept, reached = spread(point.density, seeds), spread(point.accuracy, seeds)
    density = 100 * point.density.mean
    step = point.records[0].round or 0
    return {
        "point": number,
        "method": line.label,
        "of": line.method or "",
        "density": density,
        "accuracy": mean,
        "low": mean - deviation,
        "high": mean + deviation,
        "kept": kept,
        "reached": reached,
        "settings": settings,
        "stage": point.stage,
        "seeds": seeds,
        "run": point.run,
        "step": step,
        "order": step if point.single_curve else density,
        "curve": point.on_curve,
        "single": not point.single_curve and point.has_rounds,
        "text": f"{line.label} {settings}, {point.stage}: keeps {kept} %, reaches {reached} %",
    }


def _single(label: str) -> str:
    return f"{label}: single runs"


def _data(rows: list[dict[str, Any]]) -> alt.Data:
    return alt.Data(values=rows)
