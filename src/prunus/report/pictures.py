"""The plots of a comparison, one of which is seen at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import altair as alt

from prunus.report.charts import Width, limits, metric_chart
from prunus.report.competition import Competition
from prunus.report.model import Comparison, Point, Series
from prunus.report.ranking import points_of, ranking_chart, rankings
from prunus.report.tables import margin_text
from prunus.report.views import View, views


@dataclass(frozen=True)
class Picture:
    """One plot, with what has to be said below it."""

    name: str
    """What it shows the metric against."""
    caption: str
    chart: Callable[[Sequence[Series], Width], alt.LayerChart]
    """Draws it, for the series of all comparisons (which have their colours) and a width."""


def pictures(comparison: Comparison) -> list[Picture]:
    """All plots; the one that says most is the first.

    Those are rankings if most points are in one, and else the curves against the density.
    """
    curves = [
        Picture(
            view.name,
            _caption_of_view(comparison, view),
            partial(metric_chart, comparison, view=view),
        )
        for view in views(comparison)
    ]
    found = rankings(comparison)
    several = len({own.measure for own in found}) > 1
    ranked = [
        Picture(
            f"methods at {100 * own.target:.3g} %{f', {own.measure}' if several else ''}",
            _caption_of_ranking(comparison, own),
            partial(ranking_chart, comparison, own),
        )
        for own in found
    ]
    in_rankings = sum(len(own.competing) for own in found)
    most = in_rankings > len(comparison.points) / 2
    return [*ranked, *curves] if most else [*curves, *ranked]


def _caption_of_view(comparison: Comparison, view: View) -> str:
    up = "Up" if comparison.metric.higher_is_better else "Down"
    text = f"{up} is better, {view.direction}. "
    text += _axis(comparison, comparison.points, "vertical")
    if comparison.dense is not None:
        text += _dense(comparison)
    if view.dense_at is not None:
        text += f"The diamond is the dense network as fast as it was measured: {view.dense_name}. "
    text += _bars(comparison.points)
    if any(point.has_rounds and not point.single_curve for point in comparison.points):
        text += (
            ". Thin lines are single runs from round to round, and the thick curve connects their "
            "last rounds"
        )
    return f"{text}."


def _caption_of_ranking(comparison: Comparison, ranked: Competition) -> str:
    points = points_of(ranked)
    right = "Right" if comparison.metric.higher_is_better else "Left"
    text = f"With {100 * ranked.target:.3g} % of the weights, {ranked.measure}. {right} is better. "
    text += _axis(comparison, points, "horizontal")
    if comparison.dense is not None:
        text += _dense(comparison)
    if any(entry.behind for entry in ranked.competing.values()):
        text += (
            "A hollow circle: another method is ahead, by a paired difference whose 95 % interval "
            "excludes zero. "
        )
    if len(ranked.competing) < len(points):
        text += "Who has another density behind the name does not compete. "
    return f"{text}{_bars(points)}."


def _axis(comparison: Comparison, points: Sequence[Point], which: str) -> str:
    low = limits(comparison, points)[0]
    return f"The {which} axis begins at {low:.3g}, not at 0. " if low > 0 else ""


def _dense(comparison: Comparison) -> str:
    return (
        "The dashed line is the dense network; what is in the grey band is at most "
        f"{margin_text(comparison)} worse. "
    )


def _bars(points: Sequence[Point]) -> str:
    """What the bars are, as far as there are several seeds."""
    counts = {point.value.count for point in points}
    if counts == {1}:
        return "Bars are 95 % intervals, the binomial ones of single runs"
    some = ", and the binomial ones of single runs where there is one" if 1 in counts else ""
    return f"Bars are 95 % intervals, over seeds{some}"
