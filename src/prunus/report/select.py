"""Which subnetworks count: the paper's picks and what they cost, and who leads at equal density.

Picks are made by validation values, and what is reported of them are test values. Which direction
is better depends on the metric.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from prunus.report.model import Comparison, Point, Series

NEAR = 0.03
"""Densities compete if they are this near to the target, relatively, above or below."""
_SHOWN = 0.5
"""Farther away than this, a subnetwork does not stand for a target at all."""
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


def matching(comparison: Comparison, series: Series) -> Point | None:
    """The sparsest that matches the dense network."""
    dense = comparison.dense_judged
    return _sparsest([p for p in series.points if comparison.matches(p.judged, dense)])


def sparsest_matching(comparison: Comparison) -> list[Point]:
    """The sparsest that matches, of all series; several if they are equally sparse."""
    found = [p for series in comparison.series if (p := matching(comparison, series)) is not None]
    least = min((p.density.mean for p in found), default=0.0)
    return [p for p in found if p.density.mean <= (1 + NEAR) * least]


def best(_: Comparison, series: Series) -> Point | None:
    return max(series.points, key=lambda p: (_goodness(p), -p.density.mean), default=None)


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
    return min(points, key=lambda p: (p.density.mean, -_goodness(p)), default=None)


def _goodness(point: Point) -> float:
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
    """Of all runs with a seed, each until `last_round`."""
    epochs: dict[object, int] = {}
    for record in series.records:
        early = last_round is None or record.round is None or record.round <= last_round
        if record.seed == seed and early:
            epochs[record.folder] = max(record.epochs, epochs.get(record.folder, 0))
    return Cost(sum(epochs.values()), max(epochs.values(), default=0))


# At equal density


@dataclass(frozen=True)
class Entry:
    """What a series has at a target density."""

    point: Point
    competes: bool
    """Whether its density is near enough to the target."""
    leads: bool = False
    """Whether it is surely better than every other that competes."""
    ahead_of: tuple[str, ...] = ()
    """Those that compete, and than which it is surely better."""
    behind: bool = False
    """Whether another one that competes is surely better."""


def at_equal_density(comparison: Comparison) -> dict[float, dict[str, Entry]]:
    """For each target density, by the names of series, what each has there.

    A lead needs at least two seeds, and a paired difference to every rival whose interval is above
    zero. Targets are the `target_density` of runs that something ended at; without any, the
    densities at which two series meet.
    """
    found: dict[float, dict[str, Entry]] = {}
    for target in _targets(comparison):
        entries = {s.name: entry for s in comparison.series if (entry := _entry(s, target))}
        rivals = {name: entry.point for name, entry in entries.items() if entry.competes}
        if not rivals:
            continue  # as half-way through a search in rounds, if only its end was re-trained
        for name, point in rivals.items():
            others = {rival: other for rival, other in rivals.items() if rival != name}
            ahead_of = tuple(n for n, other in others.items() if _ahead(comparison, point, other))
            entries[name] = Entry(
                point,
                competes=True,
                leads=bool(others) and len(ahead_of) == len(others),
                ahead_of=ahead_of,
                behind=any(_ahead(comparison, other, point) for other in others.values()),
            )
        found[target] = entries
    return found


def _ahead(comparison: Comparison, point: Point, other: Point) -> bool:
    several = min(point.value.count, other.value.count) > 1
    return several and comparison.gain(point.value, other.value).above_zero


def _entry(series: Series, target: float) -> Entry | None:
    near = [p for p in series.points if abs(p.density.mean / target - 1) <= NEAR]
    if near:
        return Entry(max(near, key=_goodness), competes=True)
    shown = [p for p in series.points if abs(p.density.mean / target - 1) <= _SHOWN]
    nearest = min(shown, key=lambda p: abs(log(p.density.mean / target)), default=None)
    return None if nearest is None else Entry(nearest, competes=False)


def _targets(comparison: Comparison) -> list[float]:
    wanted = {target for p in comparison.points for target in _wanted(p)}
    if not wanted:
        densities = [(p.density.mean, p.series.name) for p in comparison.points if p.on_curve]
        for density, name in densities:
            met = (other for other, rival in densities if rival != name)
            known = any(abs(density / target - 1) <= NEAR for target in wanted)
            if density and not known and any(abs(o / density - 1) <= NEAR for o in met):
                wanted.add(density)
    return sorted(wanted, reverse=True)


def _wanted(point: Point) -> Sequence[float]:
    """What its search was told to end at."""
    method = point.records[0].settings.get("method")
    target = method.get("target_density") if isinstance(method, dict) else None
    if target is None:
        return ()
    return (target,) if isinstance(target, int | float) else tuple(target)
