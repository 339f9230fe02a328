"""The paper's ways to pick a subnetwork from many, and what finding it costs.

For each seed, a rule picks one subnetwork of a line by its accuracy; mean and deviation are those
of the picks over the seeds. A seed in which nothing fulfils the rule has no pick. The accuracy to
reach is the mean of the dense networks of all seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prunus.report.runs import DENSE, Measure, Record
from prunus.report.summary import Spread

WITHIN = 0.02
"""How far below the dense network the third rule goes, as a fraction of all images."""
_ROUNDING = 1e-9  # of a mean


@dataclass(frozen=True)
class Line:
    """What belongs together in tables and plots: a method on a task, measured in one way."""

    task: str
    row: str
    label: str
    """The row, and the measure too where that is needed to tell two lines apart."""
    method: str | None
    measure: Measure
    records: Sequence[Record]
    """Those that have been measured."""

    @property
    def seeds(self) -> list[int]:
        return sorted({record.seed for record in self.records})

    def accuracy(self, record: Record) -> float:
        value = record.accuracy(self.measure)
        assert value is not None, "a line holds only what has been measured"
        return value


@dataclass(frozen=True)
class Cost:
    """Epochs of search, mean over seeds: one run after the other, and with enough workers."""

    sequential: float
    parallel: float


@dataclass(frozen=True)
class Selection:
    """What a rule picked from a line, seed by seed."""

    line: Line
    rule: str
    picks: Mapping[int, Record]

    @property
    def density(self) -> Spread:
        return Spread.of([record.density for record in self.picks.values()])

    @property
    def accuracy(self) -> Spread:
        return Spread.of([self.line.accuracy(record) for record in self.picks.values()])

    @property
    def rounds(self) -> list[int]:
        """The different rounds of the picks; empty for methods without rounds."""
        return sorted({r.round for r in self.picks.values() if r.round is not None})

    @property
    def cost(self) -> Cost:
        """Of the picks.

        With enough workers, it is what the pick's own run takes until its round. One after the
        other, all runs of the line take as much, because which one to pick is known only then.
        """
        costs = [_cost(self.line, seed, record.round) for seed, record in self.picks.items()]
        parallel = [record.epochs for record in self.picks.values()]
        return Cost(statistics.fmean(c.sequential for c in costs), statistics.fmean(parallel))


def lines(records: Sequence[Record]) -> list[Line]:
    """All lines but the dense networks, in the order of the records."""
    members: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record.command != "train":
            members.setdefault((record.task, record.row, record.command), []).append(record)
    result = []
    for (task, row, _), found in members.items():
        measure = _measure(found)
        measured = [record for record in found if record.accuracy(measure) is not None]
        if measured:
            twins = sum((t, r) == (task, row) for t, r, _ in members)
            label = f"{row}, {measure}" if twins > 1 else row
            result.append(Line(task, row, label, measured[0].method, measure, measured))
    return result


def dense_accuracy(records: Sequence[Record], task: str) -> Spread | None:
    """Of the trained dense networks of a task; None if none is trained yet."""
    found = [r.accuracy("trained") for r in records if (r.task, r.row) == (task, DENSE)]
    values = [value for value in found if value is not None]
    return Spread.of(values) if values else None


def select(line: Line, dense: float | None) -> dict[str, Selection | None]:
    """What each of `RULES` picks; None where it picks nothing in any seed.

    Without a dense network only the best performing subnetwork can be told.
    """
    result: dict[str, Selection | None] = {}
    for name, rule in RULES.items():
        picks: dict[int, Record] = {}
        for seed in line.seeds:
            pick = rule(line, [r for r in line.records if r.seed == seed], dense)
            if pick is not None:
                picks[seed] = pick
        result[name] = Selection(line, name, picks) if picks else None
    return result


def whole_cost(line: Line) -> Cost:
    """Of all subnetworks of a line."""
    costs = [_cost(line, seed, None) for seed in line.seeds]
    return Cost(
        statistics.fmean(c.sequential for c in costs), statistics.fmean(c.parallel for c in costs)
    )


def _measure(records: Sequence[Record]) -> Measure:
    """The best that has been done with any of them. Others wait for it, rather than be mixed."""
    order: tuple[Measure, ...] = ("fine-tuned", "re-trained", "searched")
    return next(m for m in order if m == "searched" or any(m in r.accuracies for r in records))


def _cost(line: Line, seed: int, last_round: int | None) -> Cost:
    """Of all runs with a seed, each until `last_round`."""
    epochs: dict[object, int] = {}
    for record in line.records:
        early = last_round is None or record.round is None or record.round <= last_round
        if record.seed == seed and early:
            epochs[record.folder] = max(record.epochs, epochs.get(record.folder, 0))
    return Cost(sum(epochs.values()), max(epochs.values(), default=0))


def _sparsest(line: Line, records: Sequence[Record], least: float) -> Record | None:
    good = [r for r in records if line.accuracy(r) >= least - _ROUNDING]
    return min(good, key=lambda r: (r.density, -line.accuracy(r)), default=None)


def _matching(line: Line, records: Sequence[Record], dense: float | None) -> Record | None:
    return None if dense is None else _sparsest(line, records, dense)


def _best(line: Line, records: Sequence[Record], _: float | None) -> Record | None:
    return max(records, key=lambda r: (line.accuracy(r), -r.density), default=None)


def _within(line: Line, records: Sequence[Record], dense: float | None) -> Record | None:
    return None if dense is None else _sparsest(line, records, dense - WITHIN)


Rule = Callable[[Line, Sequence[Record], float | None], Record | None]
RULES: dict[str, Rule] = {
    "sparsest matching": _matching,
    "best performing": _best,
    "sparsest within 2 %": _within,
}
