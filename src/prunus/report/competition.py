"""Who is ahead where several methods keep equally many weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

from prunus.report.model import Comparison, Point, Series
from prunus.report.records import Measure
from prunus.report.select import NEAR, goodness

_SHOWN = 0.5
"""Farther away than this, a subnetwork does not stand for a target at all."""


@dataclass(frozen=True)
class Entry:
    """What a series has at a target density."""

    point: Point
    competes: bool
    """Whether its density is near enough to the target, above or below."""
    ahead_of: tuple[str, ...] = ()
    """The competitors that it is surely better than."""
    behind: tuple[str, ...] = ()
    """The competitors that are surely better than it."""


@dataclass(frozen=True)
class Competition:
    """Networks with equally many weights that were made in the same way: all fine-tuned, say."""

    target: float
    """The density."""
    measure: Measure
    entries: Mapping[str, Entry]
    """By row, including those that are not near enough to compete."""

    @property
    def competing(self) -> dict[str, Entry]:
        return {row: entry for row, entry in self.entries.items() if entry.competes}

    def leads(self, row: str) -> bool:
        """Whether it is surely better than every other that competes."""
        rivals = len(self.competing) - 1
        return 0 < rivals == len(self.entries[row].ahead_of)


def competitions(comparison: Comparison) -> list[Competition]:
    """One for each target density and each way to be measured, in which something competes.

    To be ahead takes at least two seeds, and a paired difference whose interval is above zero.
    Targets are the `target_density` of runs that something ended at; without any, the densities at
    which two series meet.
    """
    measures = dict.fromkeys(series.measure for series in comparison.series)
    found = [_compete(comparison, t, m) for t in _targets(comparison) for m in measures]
    # Where only the last ticket of a search is re-trained, earlier rounds have no competitors.
    return [competition for competition in found if competition.competing]


def _compete(comparison: Comparison, target: float, measure: Measure) -> Competition:
    entries = {
        series.row: entry
        for series in comparison.series
        if series.measure == measure and (entry := _entry(series, target))
    }
    rivals = {row: entry.point for row, entry in entries.items() if entry.competes}
    ahead = {
        row: tuple(other for other in rivals if _ahead(comparison, point, rivals[other]))
        for row, point in rivals.items()
    }
    for row, point in rivals.items():
        behind = tuple(other for other in rivals if row in ahead[other])
        entries[row] = Entry(point, competes=True, ahead_of=ahead[row], behind=behind)
    return Competition(target, measure, entries)


def _ahead(comparison: Comparison, point: Point, other: Point) -> bool:
    several = min(point.value.count, other.value.count) > 1
    return several and comparison.gain(point.value, other.value).above_zero


def _entry(series: Series, target: float) -> Entry | None:
    near = [p for p in series.points if abs(p.density.mean / target - 1) <= NEAR]
    if near:
        return Entry(max(near, key=goodness), competes=True)
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
