"""Which subnetworks count: the paper's picks, and what they cost.

Picks are made by validation values, and what is reported of them are test values. Which direction
is better depends on the metric.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from prunus.report.model import Comparison, Point, Series

NEAR = 0.03
"""Densities count as equal if they are this near to each other, relatively."""
_ROUNDING = 1e-9  # of a mean

Rule = Callable[[Comparison, Series], Point | None]


def picks(comparison: Comparison) -> list[tuple[str, Series, Point | None]]:
    """What each of `RULES` picks from each series, rule by rule.

    Without a dense network, only the best performing subnetwork is known.
    """
    return [
        (name, series, rule(comparison, series))
        for name, rule in RULES.items()
        for series in comparison.series
    ]


Verdict = Literal["yes", "no", "open"]


def verdict(comparison: Comparison, point: Point) -> Verdict:
    """Whether it matches: it surely is at most `margin` worse than the dense network, or surely is
    worse than that; else it is open."""
    dense, metric = comparison.dense_judged, comparison.metric
    if dense is None:
        return "open"
    allowed = metric.gain(metric.within(dense.mean, comparison.margin), dense.mean)
    gain = comparison.gain(point.judged, dense)
    if gain.low > allowed:
        return "yes"
    return "no" if gain.high < allowed else "open"


def matching(comparison: Comparison, series: Series) -> Point | None:
    """The sparsest that matches the dense network."""
    return _sparsest([p for p in series.points if verdict(comparison, p) == "yes"])


def sparsest_matching(comparison: Comparison) -> list[Point]:
    """The sparsest that matches, of all series; several if they are equally sparse."""
    found = [p for series in comparison.series if (p := matching(comparison, series)) is not None]
    least = min((p.density.mean for p in found), default=0.0)
    return [p for p in found if p.density.mean <= (1 + NEAR) * least]


def best(_: Comparison, series: Series) -> Point | None:
    return max(series.points, key=lambda p: (goodness(p), -p.density.mean), default=None)


def within(comparison: Comparison, series: Series) -> Point | None:
    dense, metric = comparison.dense_judged, comparison.metric
    if dense is None:
        return None
    least = metric.within(dense.mean)
    good = [p for p in series.points if metric.gain(p.judged.mean, least) >= -_ROUNDING]
    return _sparsest(good)


RULES: dict[str, Rule] = {
    "sparsest matching": matching,
    "best performing": best,
    "sparsest within 2 %": within,
}


def _sparsest(points: Sequence[Point]) -> Point | None:
    return min(points, key=lambda p: (p.density.mean, -goodness(p)), default=None)


def goodness(point: Point) -> float:
    """By validation values: what picks are made by."""
    return point.series.metric.gain(point.judged.mean, 0.0)


# What a pick costs


@dataclass(frozen=True)
class Cost:
    """Epochs of search, mean over seeds: one run after the other, and with enough workers."""

    sequential: float
    parallel: float


def cost_of(point: Point) -> Cost:
    """What it takes to find a subnetwork.

    With enough workers, it is what its own run takes until its round. One after the other, all
    runs of the series take as much, because which one to pick is known only then.
    """
    costs = [_cost(point.series, record.seed, record.round) for record in point.records]
    parallel = [record.epochs for record in point.records]
    return Cost(statistics.fmean(c.sequential for c in costs), statistics.fmean(parallel))


def whole_cost(series: Series) -> Cost:
    """Of all subnetworks of a series, with the seed that has most of them."""
    costs = [_cost(series, seed, None) for seed in series.seeds]
    return max(costs, key=lambda cost: cost.sequential)


def _cost(series: Series, seed: int, last_round: int | None) -> Cost:
    """The cost of all runs with a seed, each until `last_round`."""
    epochs: dict[object, int] = {}
    for record in series.records:
        early = last_round is None or record.round is None or record.round <= last_round
        if record.seed == seed and early:
            epochs[record.folder] = max(record.epochs, epochs.get(record.folder, 0))
    return Cost(sum(epochs.values()), max(epochs.values(), default=0))
