"""The paper's ways to pick a subnetwork from many, and what finding it costs.

A rule picks a point of a line: one run's round, by its mean accuracy over seeds. The accuracy to
reach is the mean of the dense networks.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prunus.report.curves import Point, points
from prunus.report.lines import Line

WITHIN = 0.02
"""How far below the dense network the third rule goes, as a fraction of all images."""
_ROUNDING = 1e-9  # of a mean


@dataclass(frozen=True)
class Cost:
    """Epochs of search, mean over seeds: one run after the other, and with enough workers."""

    sequential: float
    parallel: float


def select(line: Line, dense: float | None) -> dict[str, Point | None]:
    """What each of `RULES` picks, if anything.

    Without a dense network only the best performing subnetwork can be told.
    """
    found = points(line)
    return {name: rule(found, dense) for name, rule in RULES.items()}


def cost_of(point: Point) -> Cost:
    """What it takes to find a subnetwork.

    With enough workers, it is what its own run takes until its round. One after the other, all
    runs of the line take as much, because which one to pick is known only then.
    """
    costs = [_cost(point.line, record.seed, record.round) for record in point.records]
    parallel = [record.epochs for record in point.records]
    return Cost(statistics.fmean(c.sequential for c in costs), statistics.fmean(parallel))


def whole_cost(line: Line) -> Cost:
    """Of all subnetworks of a line."""
    costs = [_cost(line, seed, None) for seed in line.seeds]
    return Cost(
        statistics.fmean(c.sequential for c in costs), statistics.fmean(c.parallel for c in costs)
    )


def _cost(line: Line, seed: int, last_round: int | None) -> Cost:
    """Of all runs with a seed, each until `last_round`."""
    epochs: dict[object, int] = {}
    for record in line.records:
        early = last_round is None or record.round is None or record.round <= last_round
        if record.seed == seed and early:
            epochs[record.folder] = max(record.epochs, epochs.get(record.folder, 0))
    return Cost(sum(epochs.values()), max(epochs.values(), default=0))


def _sparsest(found: Sequence[Point], least: float) -> Point | None:
    good = [p for p in found if p.accuracy.mean >= least - _ROUNDING]
    return min(good, key=lambda p: (p.density.mean, -p.accuracy.mean), default=None)


def _matching(found: Sequence[Point], dense: float | None) -> Point | None:
    return None if dense is None else _sparsest(found, dense)


def _best(found: Sequence[Point], _: float | None) -> Point | None:
    return max(found, key=lambda p: (p.accuracy.mean, -p.density.mean), default=None)


def _within(found: Sequence[Point], dense: float | None) -> Point | None:
    return None if dense is None else _sparsest(found, dense - WITHIN)


Rule = Callable[[Sequence[Point], float | None], Point | None]
RULES: dict[str, Rule] = {
    "sparsest matching": _matching,
    "best performing": _best,
    "sparsest within 2 %": _within,
}
