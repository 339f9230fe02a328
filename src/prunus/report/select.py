"""The paper's ways to pick a subnetwork from many, and what finding it costs.

A rule picks a point of a series, one run's round, by its mean over seeds. The value to reach is the
mean of the dense networks; which direction is better depends on the metric.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from prunus.report.model import Comparison, Point, Series

_ROUNDING = 1e-9  # of a mean


@dataclass(frozen=True)
class Cost:
    """Epochs of search, mean over seeds: one run after the other, and with enough workers."""

    sequential: float
    parallel: float


def picks(comparison: Comparison) -> list[tuple[str, Series, Point | None]]:
    """What each rule picks from each series, rule by rule."""
    dense = comparison.dense.mean if comparison.dense else None
    found = [(series, select(series, dense)) for series in comparison.series]
    return [(rule, series, chosen[rule]) for rule in RULES for series, chosen in found]


def select(series: Series, dense: float | None) -> dict[str, Point | None]:
    """What each of `RULES` picks, if anything.

    Without a dense network, only the best performing subnetwork is known.
    """
    return {name: rule(series, dense) for name, rule in RULES.items()}


def reaches(point: Point, least: float) -> bool:
    """Whether a point is as good as `least`, or better."""
    return point.series.metric.gain(point.value.mean, least) >= -_ROUNDING


def cost_of(point: Point) -> Cost:
    """What it takes to find a subnetwork.

    With enough workers, it is what its own run takes until its round. One after the other, all
    runs of the series take as much, because which one to pick is known only then.
    """
    costs = [_cost(point.series, record.seed, record.round) for record in point.records]
    parallel = [record.epochs for record in point.records]
    return Cost(statistics.fmean(c.sequential for c in costs), statistics.fmean(parallel))


def whole_cost(series: Series) -> Cost:
    """Of all subnetworks of a series."""
    costs = [_cost(series, seed, None) for seed in series.seeds]
    return Cost(
        statistics.fmean(c.sequential for c in costs), statistics.fmean(c.parallel for c in costs)
    )


def _cost(series: Series, seed: int, last_round: int | None) -> Cost:
    """Of all runs with a seed, each until `last_round`."""
    epochs: dict[object, int] = {}
    for record in series.records:
        early = last_round is None or record.round is None or record.round <= last_round
        if record.seed == seed and early:
            epochs[record.folder] = max(record.epochs, epochs.get(record.folder, 0))
    return Cost(sum(epochs.values()), max(epochs.values(), default=0))


def _sparsest(series: Series, least: float) -> Point | None:
    good = [point for point in series.points if reaches(point, least)]
    return min(good, key=lambda p: (p.density.mean, -_goodness(p)), default=None)


def _goodness(point: Point) -> float:
    return point.series.metric.gain(point.value.mean, 0.0)


def _matching(series: Series, dense: float | None) -> Point | None:
    return None if dense is None else _sparsest(series, dense)


def _best(series: Series, _: float | None) -> Point | None:
    return max(series.points, key=lambda p: (_goodness(p), -p.density.mean), default=None)


def _within(series: Series, dense: float | None) -> Point | None:
    return None if dense is None else _sparsest(series, series.metric.within(dense))


Rule = Callable[[Series, float | None], Point | None]
RULES: dict[str, Rule] = {
    "sparsest matching": _matching,
    "best performing": _best,
    "sparsest within 2 %": _within,
}
