"""Points of the plots: records of all seeds put together, and how lines connect them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prunus.report.runs import Record
from prunus.report.selection import Line
from prunus.report.summary import Spread


@dataclass(frozen=True)
class Point:
    """The same round of the same run, over all seeds."""

    line: Line
    parameters: Mapping[str, Any]
    stage: str
    density: Spread
    accuracy: Spread
    records: Sequence[Record]
    run: int
    """Tells the runs of a line apart, and orders the points within one."""
    on_curve: bool
    """Whether it is one that the curve of the line connects, or only one of a single run."""
    single_curve: bool
    """Whether the curve is the only run there is, from round to round."""
    has_rounds: bool
    """Whether its run has other points."""


def points(line: Line) -> list[Point]:
    """The points of a line, run by run, from round to round.

    If runs differ in their parameters, the curve connects the last round of each, as the paper's
    does for CS with different `s0`. A single run is itself the curve, as that of IMP.
    """
    runs: dict[str, dict[str, list[Record]]] = {}
    for record in line.records:
        key = json.dumps(record.parameters, sort_keys=True, default=str)
        runs.setdefault(key, {}).setdefault(record.stage, []).append(record)
    result = []
    for number, stages in enumerate(runs.values()):
        ordered = sorted(stages.values(), key=lambda records: records[0].round or 0)
        for records in ordered:
            last = records is ordered[-1]
            result.append(
                Point(
                    line=line,
                    parameters=records[0].parameters,
                    stage=records[0].stage,
                    density=Spread.of([r.density for r in records]),
                    accuracy=Spread.of([line.accuracy(r) for r in records]),
                    records=sorted(records, key=lambda r: r.seed),
                    run=number,
                    on_curve=last or len(runs) == 1,
                    single_curve=len(runs) == 1,
                    has_rounds=len(ordered) > 1,
                )
            )
    return result
