"""What tables and plots are made of: comparisons of series, which are made of points."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from prunus.report.parameters import as_text, different, telling
from prunus.report.records import Measure, Record
from prunus.tasks.metrics import MetricInfo


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds."""

    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(statistics.fmean(values), deviation, len(values))


@dataclass(frozen=True)
class Series:
    """One row of an experiment on one task, measured in one way: a curve of the plot."""

    row: str
    name: str
    """The row, and the measure too where that is needed to tell two series apart."""
    method: str | None
    measure: Measure
    records: Sequence[Record]
    """Those that have been measured."""

    @property
    def seeds(self) -> list[int]:
        return sorted({record.seed for record in self.records})

    @property
    def metric(self) -> MetricInfo:
        return self.records[0].metric

    @cached_property
    def points(self) -> list[Point]:
        """Run by run, from round to round.

        If runs differ in their parameters, the curve connects the last round of each, as the
        paper's does for CS with different `s0`. A single run is itself the curve, as that of IMP.
        """
        runs: dict[str, dict[str, list[Record]]] = {}
        for record in self.records:
            key = json.dumps(record.parameters, sort_keys=True, default=str)
            runs.setdefault(key, {}).setdefault(record.stage, []).append(record)
        points: list[Point] = []
        for number, stages in enumerate(runs.values()):
            rounds = sorted(stages.values(), key=lambda records: records[0].round or 0)
            points += [
                Point(
                    series=self,
                    records=sorted(records, key=lambda r: r.seed),
                    run=number,
                    on_curve=records is rounds[-1] or len(runs) == 1,
                    single_curve=len(runs) == 1,
                    has_rounds=len(rounds) > 1,
                )
                for records in rounds
            ]
        return points


@dataclass(frozen=True)
class Point:
    """The same round of the same run, over all seeds."""

    series: Series
    records: Sequence[Record]
    run: int
    """Tells the runs of a series apart."""
    on_curve: bool
    """Whether the curve of the series goes through it."""
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
    def value(self) -> Spread:
        """The metric, as the series measures it."""
        found = self.measured(self.series.measure)
        assert found is not None, "a series holds only what has been measured"
        return found

    def measured(self, measure: Measure) -> Spread | None:
        """The metric, as measured at one time or another."""
        values = [record.value(measure) for record in self.records]
        known = [value for value in values if value is not None]
        return Spread.of(known) if known else None


@dataclass(frozen=True)
class Comparison:
    """One dense network, in all its seeds, and what is compared with it."""

    task: str
    title: str
    """The task, and the settings too where there is more than one dense network of it."""
    metric: MetricInfo
    dense: Spread | None
    series: Sequence[Series]

    @property
    def points(self) -> list[Point]:
        return [point for series in self.series for point in series.points]


_Key = tuple[str, str]
"""Task, and the conditions of its dense network."""


def comparisons(records: Sequence[Record]) -> list[Comparison]:
    """Dense networks with different recipes, data or metrics are never averaged.

    A subnetwork belongs to the dense network that was trained on the same data, with the recipe
    that differs least from the one of its own training. If there is none, it stands alone.
    """
    dense: dict[_Key, dict[int, Record]] = {}
    for record in records:
        if record.command == "train" and record.value("trained") is not None:
            dense.setdefault(_key(record.task, record.conditions), {})[record.seed] = record
    members: dict[_Key, list[Record]] = {}
    about = {key: next(iter(group.values())).conditions for key, group in dense.items()}
    for record in records:
        if record.command == "train":
            continue
        near = {
            key: different(about[key], record.conditions) for key in dense if key[0] == record.task
        }
        near = {key: names for key, names in near.items() if not any(map(_decisive, names))}
        key = min(near, key=lambda k: len(near[k])) if near else _alone(record)
        members.setdefault(key, []).append(record)
        about.setdefault(key, {n: v for n, v in record.conditions.items() if _decisive(n)})
    tasks = list(dict.fromkeys(record.task for record in records))
    found = []
    for key in sorted(about, key=lambda key: tasks.index(key[0])):
        own = list(dense.get(key, {}).values())
        first = next(iter([*own, *members.get(key, [])]))
        values = [value for record in own if (value := record.value("trained")) is not None]
        found.append(
            Comparison(
                task=key[0],
                title=_title(key, about),
                metric=first.metric,
                dense=Spread.of(values) if values else None,
                series=series_of(members.get(key, [])),
            )
        )
    return found


def series_of(records: Sequence[Record]) -> list[Series]:
    """The series of one task, without the dense networks, in the order of the records."""
    members: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.command != "train":
            members.setdefault((record.row, record.command), []).append(record)
    found = [
        (row, measure, group)
        for (row, _), own in members.items()
        for measure in _measures(own)
        if (group := _measured(own, measure))
    ]
    rows = [row for row, *_ in found]
    return [
        Series(
            row=row,
            name=f"{row}, {measure}" if rows.count(row) > 1 else row,
            method=group[0].method,
            measure=measure,
            records=group,
        )
        for row, measure, group in found
    ]


def _measures(records: Sequence[Record]) -> list[Measure]:
    """What has been done with any of them; the others wait for it, rather than be mixed."""
    order: tuple[Measure, ...] = ("fine-tuned", "re-trained")
    return [m for m in order if any(m in r.measured for r in records)] or ["searched"]


def _measured(records: Sequence[Record], measure: Measure) -> list[Record]:
    """Copies of a run, as in two sweeps, count once: they have the same folder name, and hash."""
    found: dict[object, Record] = {}
    for record in records:
        if record.value(measure) is not None:
            again = record.retraining.name if record.retraining else None
            found.setdefault((record.folder.name, record.stage, again), record)
    return list(found.values())


def _key(task: str, conditions: Mapping[str, Any]) -> _Key:
    return task, json.dumps(conditions, sort_keys=True, default=str)


def _alone(record: Record) -> _Key:
    decisive = {n: v for n, v in record.conditions.items() if _decisive(n)}
    return _key(record.task, {**decisive, "dense": None})


def _decisive(name: str) -> bool:
    """Whether networks that differ in this condition cannot be compared at all."""
    return name.startswith("data") or name == "metric"


def _title(key: _Key, about: Mapping[_Key, Mapping[str, Any]]) -> str:
    names = telling([values for other, values in about.items() if other[0] == key[0]])
    values = {name.removeprefix("recipe."): about[key].get(name) for name in names}
    shown = {name: value for name, value in values.items() if value is not None}
    return ", ".join(filter(None, [key[0], as_text(shown)]))
