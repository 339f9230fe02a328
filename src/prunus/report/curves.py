"""Points of tables and plots: records of all seeds put together, and how lines connect them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from prunus.report.lines import Line
from prunus.report.runs import Record
from prunus.report.summary import Spread


@dataclass(frozen=True)
class Point:
    """The same round of the same run, over all seeds."""

    line: Line
    records: Sequence[Record]
    run: int
    """Tells the runs of a line apart."""
    on_curve: bool
    """Whether it is one that the curve of the line connects, or only one of a single run."""
    single_curve: bool
    """Whether the curve is the only run there is, from round to round."""
    has_rounds: bool
    """Whether its run has other points."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.records[0].parameters

    @property
    def stage(self) -> str:
        return self.records[0].stage

    @property
    def round(self) -> int | None:
        return self.records[0].round

    @cached_property
    def density(self) -> Spread:
        return Spread.of([record.density for record in self.records])

    @cached_property
    def accuracy(self) -> Spread:
        return Spread.of([self.line.accuracy(record) for record in self.records])


def points(line: Line) -> list[Point]:
    """The points of a line, run by run, from round to round.

    If runs differ in their parameters, the curve connects the last round of each, as the paper's
    does for CS with different `s0`. A single run is itself the curve, as that of IMP.
    """
    runs: dict[str, dict[str, list[Record]]] = {}
    for record in line.records:
        key = json.dumps(record.parameters, sort_keys=True, default=str)
        runs.setdefault(key, {}).setdefault(record.stage, []).append(record)
    return [
        Point(
            line=line,
            records=sorted(records, key=lambda r: r.seed),
            run=number,
            on_curve=records is ordered[-1] or len(runs) == 1,
            single_curve=len(runs) == 1,
            has_rounds=len(ordered) > 1,
        )
        for number, stages in enumerate(runs.values())
        for ordered in [sorted(stages.values(), key=lambda records: records[0].round or 0)]
        for records in ordered
    ]
