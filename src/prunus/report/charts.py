"""The plots, as Altair charts: one specification for the page, PNG, PDF and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, Literal

import altair as alt

from prunus.report.model import Comparison, Point
from prunus.report.parameters import as_text
from prunus.report.tables import KEPT, scaled, spread
from prunus.tasks.metrics import MetricInfo

# Okabe and Ito's, told apart with any kind of colour vision, then darker ones of Paul Tol's. The
# numbers of colours, shapes and dashes have no common factor, so that many series differ in at
# least one of them.
_COLOURS = ["#009e73", "#0072b2", "#d55e00", "#e69f00", "#56b4e9"]
_COLOURS += ["#332288", "#999933", "#882255", "#661100"]
_SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"]
_DASHES = [[1, 0], [8, 3], [2, 2], [8, 3, 2, 3]]
_PURPLE = "#b565a0"
_GREY = "#7a808c"
_BAR = "M-1,-0.15H1V0.15H-1Z"  # a line, as a shape that is filled like the others

Width = int | Literal["container"]


def metric_against_density(
    comparison: Comparison, order: Sequence[str], width: Width = 640
) -> alt.LayerChart:
    """The metric against the density, for all series of a task; the dense network as a line.

    `order` has the names of the series of all tasks: the same method looks the same on each. Points
    of the data carry their number among `comparison.points` as `point`.
    """
    metric, dense = comparison.metric, comparison.dense
    rows = [_row(number, point) for number, point in enumerate(comparison.points)]
    rows = [row for row in rows if row["density"] > 0]  # the axis is logarithmic
    single = [{**r, "method": _single(r["method"])} for r in rows if r["single"]]
    singles = list(dict.fromkeys(row["method"] for row in single))
    names = [name for name in order if any(row["method"] == name for row in rows)]
    domain = [*names, *singles]
    look = {name: i for i, name in enumerate(order)}
    methods = {row["method"]: row["of"] for row in rows}
    colours = [_COLOURS[look[n] % len(_COLOURS)] for n in names]
    shapes = [_SHAPES[look[n] % len(_SHAPES)] for n in names]
    dashes = [_DASHES[look[n] % len(_DASHES)] for n in names]
    for name in names:
        if _single(name) in singles:
            colours.append(_PURPLE if methods[name] == "cs" else colours[names.index(name)])
            shapes.append(shapes[names.index(name)])
            dashes.append([1, 0])
    if dense is not None:
        domain.append(f"dense network: {_with_unit(metric, spread(metric, dense))}")
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
    y = alt.Y("value:Q", title=axis_title(metric), scale=alt.Scale(zero=False))
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
    if dense is not None:
        line = alt.Chart(_data([{"value": scaled(metric, dense.mean), "method": domain[-1]}]))
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
                alt.Tooltip("reached:N", title=axis_title(metric)),
                alt.Tooltip("seeds:Q"),
            ],
        )
    )
    chart: alt.LayerChart = _readable(alt.layer(*layers).properties(width=width, height=380))
    return chart


def series_order(comparisons: Sequence[Comparison]) -> list[str]:
    """The names of all series of all tasks, CS first: the others are compared with it."""
    series = [series for comparison in comparisons for series in comparison.series]
    return list(dict.fromkeys(s.name for s in sorted(series, key=lambda s: s.method != "cs")))


def axis_title(metric: MetricInfo, name: str | None = None) -> str:
    """`accuracy (%)`."""
    return f"{name or metric.name} ({metric.unit})" if metric.unit else name or metric.name


def curve_chart(field: str, title: str) -> dict[str, Any]:
    """A training curve whose data, `rows` of `part`, `at` and `field`, the page puts in."""
    chart = (
        alt.Chart(alt.NamedData("rows"), width="container", height=150)
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=14))
        .encode(
            x=alt.X("at:Q", title="epoch", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y(f"{field}:Q", title=title, scale=alt.Scale(zero=field != "value")),
            color=alt.Color(
                "part:N",
                title=None,
                legend=alt.Legend(orient="top"),
                scale=alt.Scale(domain=["search", "re-training"], range=[_PURPLE, _COLOURS[0]]),
            ),
            detail="stage:N",
            tooltip=["part:N", "stage:N", alt.Tooltip("at:Q", title="epoch"), f"{field}:Q"],
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
    series, metric = point.series, point.series.metric
    found = point.value.estimate
    ends = (found.low, found.high) if isfinite(found.error) else (found.mean, found.mean)
    low, high = (scaled(metric, end) for end in ends)
    settings = as_text(point.parameters)
    kept, reached = spread(KEPT, point.density), spread(metric, point.value)
    density = scaled(KEPT, point.density.mean)
    step = point.round or 0
    reaches = _with_unit(metric, reached)
    return {
        "point": number,
        "method": series.name,
        "of": series.method or "",
        "density": density,
        "value": scaled(metric, found.mean),
        "low": low,
        "high": high,
        "kept": kept,
        "reached": reached,
        "settings": settings,
        "stage": point.stage,
        "seeds": point.value.count,
        "run": point.run,
        "step": step,
        "order": step if point.single_curve else density,
        "curve": point.on_curve,
        "single": not point.single_curve and point.has_rounds,
        "text": f"{series.name} {settings}, {point.stage}: keeps {kept} %, reaches {reaches}",
    }


def _with_unit(metric: MetricInfo, text: str) -> str:
    return f"{text} {metric.unit}".rstrip()


def _single(name: str) -> str:
    return f"{name}: single runs"


def _data(rows: list[dict[str, Any]]) -> alt.Data:
    return alt.Data(values=rows)
