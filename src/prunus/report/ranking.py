"""The plot of many methods that keep equally many weights: one below the other, the best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from prunus.report.charts import GREY, WIDTH, Width, axis_title, colours, limits, point_data
from prunus.report.competition import Competition, Entry, competitions
from prunus.report.model import Comparison, Point, Series
from prunus.report.panel_charts import readable
from prunus.report.tables import KEPT, number, scaled, spread, spread_with_unit

MANY = 4
"""With fewer methods at a density, the plot against the density shows them just as well."""
_LINE = 30  # pixels


def rankings(comparison: Comparison) -> list[Competition]:
    """The competitions that have a plot of their own: those of many methods."""
    return [own for own in competitions(comparison) if len(own.competing) >= MANY]


def points_of(ranked: Competition) -> list[Point]:
    """What the plot shows."""
    return [entry.point for entry in ranked.entries.values()]


def ranking_chart(
    comparison: Comparison, ranked: Competition, order: Sequence[Series], width: Width = WIDTH
) -> alt.LayerChart:
    """A line for each method, the best first, with its 95 % interval; the dense network as a rule.

    A circle is hollow where another method is surely better. One that keeps too many or too few
    weights to compete has its density behind the name.
    """
    metric, dense = comparison.metric, comparison.dense
    colour_of = colours(order)
    numbers = {id(point): i for i, point in enumerate(comparison.points)}
    entries = sorted(
        ranked.entries.items(), key=lambda own: -metric.gain(own[1].point.value.mean, 0.0)
    )
    rows = [
        _row(comparison, _name(row, entry), entry, numbers[id(entry.point)], at, colour_of)
        for at, (row, entry) in enumerate(entries)
    ]
    scale = alt.Scale(
        domain=limits(comparison, points_of(ranked)),
        zero=False,
        nice=False,
    )
    title = axis_title(metric)
    if dense is not None:
        title += f"; dense network: {spread(metric, dense)}"
    x = alt.X("value:Q", title=title, scale=scale)
    y = alt.Y(
        "method:N",
        sort=[row["method"] for row in rows],
        title=None,
        axis=alt.Axis(grid=True, labelLimit=260, labelPadding=8, ticks=False, domain=False),
    )
    colour = alt.Color("colour:N", scale=None)
    base = alt.Chart(alt.Data(values=rows)).encode(y=y)
    layers: list[Any] = []
    if dense is not None:
        least = scaled(metric, metric.within(dense.mean, comparison.margin))
        whole = alt.Chart(alt.Data(values=[{"value": scaled(metric, dense.mean), "least": least}]))
        layers += [
            whole.mark_rect(color=GREY, opacity=0.15, aria=False).encode(x=x, x2="least:Q"),
            whole.mark_rule(color=GREY, strokeWidth=2, strokeDash=[6, 4], aria=False).encode(x=x),
        ]
    layers += [
        base.mark_rule(strokeWidth=2, clip=True, aria=False).encode(
            x=alt.X("low:Q"), x2="high:Q", color=colour
        ),
        base.mark_point(size=90, filled=True, opacity=1, strokeWidth=2, aria=False).encode(
            x=x,
            stroke=colour,
            fill=alt.Fill("fill:N", scale=None),
        ),
        # Between the lines, where no interval is in the way.
        base.mark_text(dy=-12, fontSize=11, color=GREY, aria=False).encode(x=x, text="reached:N"),
        base.mark_point(
            size=400, filled=True, fillOpacity=0, strokeOpacity=0, cursor="pointer"
        ).encode(
            x=x,
            description="text:N",
            tooltip=[
                alt.Tooltip("method:N"),
                alt.Tooltip("settings:N"),
                alt.Tooltip("kept:N", title="weights kept (%)"),
                alt.Tooltip("reached:N", title=axis_title(metric)),
                alt.Tooltip("seeds:Q"),
            ],
        ),
    ]
    picture = alt.layer(*layers).properties(width=width, height=_LINE * len(rows))
    chart: alt.LayerChart = readable(picture)
    return chart


def _name(row: str, entry: Entry) -> str:
    return row if entry.competes else f"{row} (at {number(KEPT, entry.point.density.mean)} %)"


def _row(
    comparison: Comparison,
    name: str,
    entry: Entry,
    place: int,
    at: int,
    colour_of: Mapping[str, str],
) -> dict[str, Any]:
    metric, point = comparison.metric, entry.point
    colour = colour_of[point.series.name]
    return {
        **point_data(point, metric),
        "point": place,
        "at": at,
        "method": name,
        "colour": colour,
        "fill": "white" if entry.behind else colour,
        "text": f"{name}: {spread_with_unit(metric, point.value)}",
    }
