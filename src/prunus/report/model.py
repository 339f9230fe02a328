"""What tables and plots are made of: comparisons of series, which are made of points."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from prunus.report.intervals import Estimate, Measured
from prunus.report.parameters import as_text, determining, different, telling
from prunus.report.records import Measure, Record
from prunus.tasks.data import SplitName
from prunus.tasks.metrics import ACCURACY, MetricInfo

MARGIN = 0.005
"""By how much a subnetwork that matches may be worse than the dense network: 0.5 points."""


def measured(
    records: Sequence[Record], measure: Measure, split: SplitName | None = None
) -> Measured | None:
    """The first metric by seed, of those that have been measured; None if none has."""
    by_seed: dict[int, list[float]] = {}
    for record in records:
        value = record.value(measure, split)
        if value is not None:
            by_seed.setdefault(record.seed, []).append(value)
    if not by_seed:
        return None
    counted = [r.measured[measure].samples for r in records if measure in r.measured]
    samples = counted[0].get(split or "test") if records[0].metric == ACCURACY else None
    return Measured({seed: fmean(values) for seed, values in by_seed.items()}, samples)


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
    split: SplitName | None = "validation"
    """What picks are made by; None where they have to be made by the reported values."""

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
            runs.setdefault(_as_key(record.parameters), {}).setdefault(record.stage, []).append(
                record
            )
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
    def density(self) -> Measured:
        return Measured({record.seed: record.density for record in self.records})

    def kept(self, name: str) -> Measured | None:
        """What is kept of something else than the weights under the mask, a field of
        `StageResult` such as `kept_macs`; None where it is not known."""
        found = {r.seed: r.kept(name, self.series.measure) for r in self.records}
        known = {seed: value for seed, value in found.items() if value is not None}
        return Measured(known) if len(known) == len(found) else None

    @cached_property
    def value(self) -> Measured:
        """The metric as it is reported: on test data, when the series measures it."""
        return self._known(None)

    @cached_property
    def judged(self) -> Measured:
        """The metric as picks see it: on validation data."""
        return self._known(self.series.split)

    def _known(self, split: SplitName | None) -> Measured:
        found = self.measured(self.series.measure, split)
        assert found is not None, "a series holds only what has been measured"
        return found

    def measured(self, measure: Measure, split: SplitName | None = None) -> Measured | None:
        """The metric measured in this way; None if it has not been."""
        return measured(self.records, measure, split)


@dataclass(frozen=True)
class Comparison:
    """One dense network, in all its seeds, and what is compared with it."""

    task: str
    title: str
    """The task, and the settings too where there is more than one dense network of it."""
    metric: MetricInfo
    baselines: Sequence[Record]
    """The dense network, once for each seed."""
    series: Sequence[Series]
    split: SplitName | None = "validation"
    """What picks are made by; None: by the reported values, because others are missing."""
    margin: float = MARGIN
    """By how much a subnetwork that matches may be worse, as `MetricInfo.within` takes it."""

    @property
    def points(self) -> list[Point]:
        return [point for series in self.series for point in series.points]

    @cached_property
    def dense(self) -> Measured | None:
        """The dense network, as it is reported."""
        return measured(self.baselines, "trained")

    @cached_property
    def dense_judged(self) -> Measured | None:
        """The dense network, as picks see it."""
        return measured(self.baselines, "trained", self.split)

    @property
    def seeds(self) -> int:
        """The most seeds that any network has."""
        return max((p.value.count for p in self.points), default=len(self.baselines))

    def gain(self, ours: Measured, theirs: Measured) -> Estimate:
        """How much better one network is than another: negative if it is worse."""
        return ours.minus(theirs) if self.metric.higher_is_better else theirs.minus(ours)


_Key = tuple[str, str]
"""Task, and the conditions of its dense network."""


def comparisons(records: Sequence[Record], margin: float = MARGIN) -> list[Comparison]:
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
        own = _decisive(record.conditions)
        near = {
            key: len(different(about[key], record.conditions))
            for key in dense
            if key[0] == record.task and not different(_decisive(about[key]), own)
        }
        key = min(near, key=near.__getitem__, default=_key(record.task, {**own, "dense": None}))
        members.setdefault(key, []).append(record)
        about.setdefault(key, own)
    tasks = list(dict.fromkeys(record.task for record in records))
    found = []
    for key in sorted(about, key=lambda key: tasks.index(key[0])):
        baselines, others = list(dense.get(key, {}).values()), members.get(key, [])
        split = _split_of([*baselines, *others])
        found.append(
            Comparison(
                task=key[0],
                title=_title(key, about),
                metric=[*baselines, *others][0].metric,
                baselines=baselines,
                series=series_of(others, split),
                split=split,
                margin=margin,
            )
        )
    return found


def _split_of(records: Sequence[Record]) -> SplitName | None:
    """Validation, if everything that was measured has a validation value."""
    known = (r.value(m, "validation") for r in records for m in r.measured)
    return "validation" if all(value is not None for value in known) else None


def series_of(records: Sequence[Record], split: SplitName | None = "validation") -> list[Series]:
    """The series of one task, without the dense networks, in the order of the records."""
    members: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.command != "train":
            members.setdefault((record.row, record.command), []).append(record)
    found = [
        (row, measure, group)
        for (row, _), own in members.items()
        for measure in _measures(own)
        if (group := _told_apart(_measured(own, measure)))
    ]
    rows = [row for row, *_ in found]
    return [
        Series(
            row=row,
            name=f"{row}, {measure}" if rows.count(row) > 1 else row,
            method=group[0].method,
            measure=measure,
            records=group,
            split=split,
        )
        for row, measure, group in found
    ]


def _measures(records: Sequence[Record]) -> list[Measure]:
    """What was done with any of them; the others are left out until it is done with them too."""
    order: tuple[Measure, ...] = ("fine-tuned", "re-trained")
    return [m for m in order if any(m in r.measured for r in records)] or ["searched"]


def _measured(records: Sequence[Record], measure: Measure) -> list[Record]:
    """Those that were measured. Copies of a run, as in two sweeps, count once: the hash in their
    folder's name is the same."""
    found: dict[object, Record] = {}
    for record in records:
        if record.value(measure) is not None:
            again = record.retraining.name if record.retraining else None
            found.setdefault((record.folder.name, record.stage, again), record)
    return list(found.values())


def _told_apart(records: Sequence[Record]) -> list[Record]:
    """Runs that one point would average though their settings differ, as where two rows have the
    same name: these settings become parameters."""
    groups: dict[str, dict[tuple[int, str], list[Record]]] = {}
    for record in records:
        cells = groups.setdefault(_as_key(record.parameters), {})
        cells.setdefault((record.seed, record.stage), []).append(record)
    names = {
        key: dict.fromkeys(
            name
            for first, *others in cells.values()
            for other in others
            for name in different(_settings(first), _settings(other))
        )
        for key, cells in groups.items()
    }
    found = []
    for record in records:
        chosen = names[_as_key(record.parameters)]
        own = _settings(record) if chosen else {}
        more = {name: own[name] for name in chosen if own.get(name) is not None}
        found.append(replace(record, parameters={**record.parameters, **more}) if more else record)
    return found


def _settings(record: Record) -> dict[str, Any]:
    return {"method": record.method, **determining(record.settings)}


def _as_key(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, default=str)


def _key(task: str, conditions: Mapping[str, Any]) -> _Key:
    return task, _as_key(conditions)


def _decisive(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """The conditions in which networks must agree to be compared at all."""
    return {n: v for n, v in conditions.items() if n.startswith("data") or n == "metric"}


def _title(key: _Key, about: Mapping[_Key, Mapping[str, Any]]) -> str:
    names = telling([values for other, values in about.items() if other[0] == key[0]])
    values = {name.removeprefix("recipe."): about[key].get(name) for name in names}
    shown = {name: value for name, value in values.items() if value is not None}
    return ", ".join(filter(None, [key[0], as_text(shown)]))
