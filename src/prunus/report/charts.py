"""The plots, as Altair charts: one specification for the page, PNG, PDF and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt
from typing import Any, Literal

import altair as alt

from prunus.report.colours import OF_METHODS, OTHERS
from prunus.report.model import Comparison, Point, Series
from prunus.report.panel_charts import readable
from prunus.report.parameters import as_text
from prunus.report.tables import KEPT, scaled, spread, spread_with_unit
from prunus.report.views import View, by_density
from prunus.tasks.metrics import MetricInfo

# Their numbers have no common factor, so that rows of one method differ in at least one of them.
_SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right"]
_DASHES = [[1, 0], [8, 3], [2, 2], [8, 3, 2, 3]]
GREY = "#7a808c"
"""The dense network, and text inside of a plot: readable on light and on dark."""
_BAR = "M-1,-0.15H1V0.15H-1Z"  # a line, as a shape that is filled like the others
_SPAN = 10
"""The axis of values spans at least so many margins, lest it make noise look large."""
_TIMES = 2.0
"""The axis of densities or speeds spans at least this factor, for the same reason."""

Width = int | Literal["container"]
WIDTH = 640
"""Of a plot that is a picture by itself."""


def metric_chart(
    comparison: Comparison, order: Sequence[Series], width: Width = WIDTH, view: View | None = None
) -> alt.LayerChart:
    """The metric against the density, or as `view` says, for all series of a task; the dense
    network as a line.

    `order` has the series of all tasks: the same method looks the same on each. Points of the data
    carry their number among `comparison.points` as `point`. A click in the legend hides a series.
    """
    metric, dense = comparison.metric, comparison.dense
    view = view or by_density(comparison)
    rows = [
        _row(i, point, at, view)
        for i, point in enumerate(comparison.points)
        if (at := view.at(point))  # the axis is logarithmic
    ]
    single = [{**row, "method": _single(row["method"])} for row in rows if row["single"]]
    looks = _looks(rows, single, order)
    if dense is not None:
        whole = f"dense network: {spread_with_unit(metric, dense)}"
        looks[whole] = (GREY, _BAR, [6, 4])
    shown = alt.selection_point(
        fields=["method"], bind="legend", toggle="true", value=[{"method": n} for n in looks]
    )

    def scale(which: int) -> alt.Scale:
        return alt.Scale(domain=list(looks), range=[look[which] for look in looks.values()])

    def hideable(opacity: float) -> Any:
        return alt.condition(shown, alt.value(opacity), alt.value(0))

    legend = alt.Legend(
        orient="top", title=None, columns=4, labelLimit=300, symbolOpacity=1, symbolStrokeWidth=0
    )
    x = alt.X(
        "at:Q",
        title=view.title,
        scale=alt.Scale(type="log", nice=False, padding=20, **_domain([r["at"] for r in rows])),
        axis=alt.Axis(
            values=[m * 10.0**e for e in range(-3, 8) for m in view.ticks], format=view.format
        ),
    )
    scale_y = alt.Scale(domain=limits(comparison, comparison.points), zero=False, nice=False)
    y = alt.Y("value:Q", title=axis_title(metric), scale=scale_y)
    colour = alt.Color("method:N", scale=scale(0), legend=legend)
    shape = alt.Shape("method:N", scale=scale(1), legend=legend)
    dash = alt.StrokeDash("method:N", scale=scale(2), legend=legend)
    curve = alt.Chart(_data([r for r in rows if r["curve"]])).encode(x=x, color=colour)
    runs = alt.Chart(_data(single)).encode(x=x, y=y, color=colour)
    layers: list[Any] = []
    if dense is not None:
        layers += _dense_layers(comparison, whole, y, colour, dash, hideable(1))
    if single:
        layers += [
            runs.mark_line(strokeWidth=1, aria=False).encode(
                detail="run:N", order="step:Q", opacity=hideable(0.5)
            ),
            runs.mark_point(size=22, filled=True, aria=False).encode(
                shape=shape, opacity=hideable(0.5)
            ),
        ]
    layers += [
        curve.mark_rule(strokeWidth=1.5, clip=True, aria=False).encode(
            y=alt.Y("low:Q"), y2="high:Q", opacity=hideable(1)
        ),
        curve.mark_line(strokeWidth=2.5, aria=False).encode(
            y=y, order="order:Q", strokeDash=dash, opacity=hideable(1)
        ),
        curve.mark_point(size=80, filled=True, aria=False)
        .encode(y=y, shape=shape, opacity=hideable(1))
        .add_params(shown),
    ]
    layers += _dense_point(comparison, view, x, y)
    winners = [row for row in rows if row["winner"]]
    if winners:
        ring = alt.Chart(_data(winners)).encode(x=x, y=y)
        layers += [
            ring.mark_point(size=320, strokeWidth=2.5, color=GREY, aria=False),
            ring.mark_text(
                align="left", dx=14, dy=22, fontSize=13, fontWeight="bold", color=GREY, aria=False
            ).encode(text="winner:N"),
        ]
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
                alt.Tooltip("of all weights:N", title="of all weights (%)"),
                *([alt.Tooltip("at:Q", title=view.name, format=",.0f")] if view.dense_at else []),
                alt.Tooltip("reached:N", title=axis_title(metric)),
                alt.Tooltip("seeds:Q"),
            ],
        )
    )
    picture = alt.layer(*layers).properties(width=width, height=380)
    chart: alt.LayerChart = readable(picture)
    return chart


def _dense_layers(
    comparison: Comparison, name: str, y: alt.Y, colour: Any, dash: Any, opacity: Any
) -> list[Any]:
    """The dense network as a line, over a band of what still counts as matching."""
    metric, dense = comparison.metric, comparison.dense
    assert dense is not None
    least = scaled(metric, metric.within(dense.mean, comparison.margin))
    row = {"value": scaled(metric, dense.mean), "least": least, "method": name}
    base = alt.Chart(_data([row]))
    return [
        base.mark_rect(color=GREY, opacity=0.15, aria=False).encode(y=y, y2="least:Q"),
        base.mark_rule(strokeWidth=2, aria=False).encode(
            y=y, color=colour, strokeDash=dash, opacity=opacity
        ),
    ]


def _dense_point(comparison: Comparison, view: View, x: alt.X, y: alt.Y) -> list[Any]:
    """The dense network where it is on the horizontal axis, if that is known."""
    if view.dense_at is None or comparison.dense is None:
        return []
    value = scaled(comparison.metric, comparison.dense.mean)
    base = alt.Chart(_data([{"at": view.dense_at, "value": value, "name": view.dense_name}]))
    point = base.encode(x=x, y=y)
    return [
        point.mark_point(shape="diamond", size=120, filled=True, color=GREY, aria=False),
        point.mark_text(align="left", dx=10, dy=-10, fontSize=12, color=GREY, aria=False).encode(
            text="name:N"
        ),
    ]


def limits(comparison: Comparison, points: Sequence[Point]) -> list[float]:
    """From the lowest to the highest end of an error bar, and at least `_SPAN` margins wide."""
    metric = comparison.metric
    found = [p.value.estimate for p in points]
    found += [comparison.dense.estimate] if comparison.dense else []
    ends = [end for e in found for end in (e.mean, e.low, e.high) if isfinite(end)]
    low, high = scaled(metric, min(ends)), scaled(metric, max(ends))
    room = 0.04 * (high - low)
    middle = metric.within((min(ends) + max(ends)) / 2, _SPAN / 2 * comparison.margin)
    half = abs(scaled(metric, middle) - (low + high) / 2)
    low, high = min(low - room, (low + high) / 2 - half), max(high + room, (low + high) / 2 + half)
    return [max(low, 0.0), min(high, 100.0)] if metric.unit == "%" else [low, high]


def _domain(places: Sequence[float]) -> dict[str, Any]:
    """The domain of an axis, set only if its points are so close together that it would make small
    differences look large."""
    if not places or max(places) >= _TIMES * min(places):
        return {}
    middle = sqrt(min(places) * max(places))
    return {"domain": [middle / sqrt(_TIMES), middle * sqrt(_TIMES)]}


def _looks(
    rows: Sequence[dict[str, Any]], single: Sequence[dict[str, Any]], order: Sequence[Series]
) -> dict[str, tuple[str, str, list[int]]]:
    """Colour, shape and dashes of each entry of the legend."""
    looks: dict[str, tuple[str, str, list[int]]] = {}
    for i, (name, colour) in enumerate(colours(order).items()):
        if any(row["method"] == name for row in rows):
            looks[name] = (colour, _SHAPES[i % len(_SHAPES)], _DASHES[i % len(_DASHES)])
    singles = {row["method"] for row in single}
    for name, (colour, shape, _) in list(looks.items()):
        if _single(name) in singles:
            looks[_single(name)] = (colour, shape, [1, 0])
    return looks


def colours(order: Sequence[Series]) -> dict[str, str]:
    """The colour of each series by its name: its method's, which is the same in every plot."""
    strange = [s.method or "" for s in order if _colour_name(s) not in OF_METHODS]
    own = {name: i for i, name in enumerate(dict.fromkeys(strange))}
    return {
        s.name: OF_METHODS.get(_colour_name(s), OTHERS[own.get(s.method or "", 0) % len(OTHERS)])
        for s in order
    }


def _colour_name(series: Series) -> str:
    """A control has the colour of random masks, whichever method found its densities."""
    return "random" if series.records[0].control else series.method or ""


def series_order(comparisons: Sequence[Comparison]) -> list[Series]:
    """The series of all tasks, CS first: the others are compared with it."""
    series = [series for comparison in comparisons for series in comparison.series]
    return sorted(series, key=lambda s: s.method != "cs" or bool(s.records[0].control))


def axis_title(metric: MetricInfo, name: str | None = None) -> str:
    """`accuracy (%)`."""
    return f"{name or metric.name} ({metric.unit})" if metric.unit else name or metric.name


def point_data(point: Point, metric: MetricInfo) -> dict[str, Any]:
    """What every plot knows of a point: its value with the interval, its density, its settings."""
    found = point.value.estimate
    ends = (found.low, found.high) if isfinite(found.error) else (found.mean, found.mean)
    low, high = (scaled(metric, end) for end in ends)
    return {
        "value": scaled(metric, found.mean),
        "low": low,
        "high": high,
        "kept": spread(KEPT, point.density),
        "reached": spread(metric, point.value),
        "settings": as_text(point.parameters),
        "seeds": point.value.count,
    }


def _row(number: int, point: Point, at: float, view: View) -> dict[str, Any]:
    series, metric = point.series, point.series.metric
    data = point_data(point, metric)
    of_all = point.kept("network_density")
    step = point.round or 0
    return {
        **data,
        "point": number,
        "method": series.name,
        "winner": view.winners.get(id(point)),
        "at": at,
        "of all weights": spread(KEPT, of_all) if of_all else "not known",
        "stage": point.stage,
        "run": point.run,
        "step": step,
        "order": step if point.single_curve else at,
        "curve": point.on_curve,
        "single": not point.single_curve and point.has_rounds,
        "text": f"{series.name} {data['settings']}, {point.stage}: keeps {data['kept']} %, reaches "
        f"{spread_with_unit(metric, point.value)}",
    }


def _single(name: str) -> str:
    return f"{name}: single runs"


def _data(rows: list[dict[str, Any]]) -> alt.Data:
    return alt.Data(values=rows)
