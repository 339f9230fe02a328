"""What the runs below a folder found, as one flat list: a record for each subnetwork."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from prunus.files import inside, resolved
from prunus.report.parameters import conditions, different, run_parameters
from prunus.report.read import RunFolder, Sweep, read_folders
from prunus.runs.origin import Origin, read_origin
from prunus.runs.results import StageResult
from prunus.runs.speed import Speed, read_speeds
from prunus.sweeps.experiment import DENSE
from prunus.tasks.data import SplitName
from prunus.tasks.metrics import ACCURACY, MetricInfo

Measure = Literal["trained", "searched", "fine-tuned", "re-trained"]


@dataclass(frozen=True)
class Record:
    """One subnetwork, or a dense network, and what became of it."""

    task: str
    row: str
    """Its row in the tables: the method, unless an experiment names it otherwise."""
    command: str
    """What found it: train (a dense network), search, prune; retrain if that is not known."""
    method: str | None
    parameters: Mapping[str, Any]
    """The settings that tell its run from others of its row."""
    seed: int
    folder: Path
    stage: str
    round: int | None
    density: float
    epochs: int
    """Of search until it was found; re-training and fine-tuning, equal for all, do not count."""
    measured: Mapping[Measure, StageResult]
    """What was found when, with the binary mask."""
    metrics: tuple[MetricInfo, ...] = (ACCURACY,)
    ticket: Path | None = None
    retraining: Path | None = None
    """Folder of the run that re-trained it."""
    control: str | None = None
    """What the re-training replaced in the ticket, to see what that was worth."""
    layers: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    runs: Mapping[str, Origin | None] = field(default_factory=dict)
    """The finished runs that it comes from, by their keys in a sweep, and what made each."""
    speeds: tuple[Speed, ...] = ()
    """Of its last network, deployed, as far as they were measured."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """Recipe and data of its last training, and the metric: only what shares them is compared."""

    @property
    def metric(self) -> MetricInfo:
        """The first metric, which picks and plots use."""
        return self.metrics[0]

    def value(self, measure: Measure, split: SplitName | None = None) -> float | None:
        """The first metric, if it was measured; by default on test data, and where a task has
        none, on validation data."""
        found = self.measured.get(measure)
        if found is None:
            return None
        name = self.metric.name
        return found.reported(name) if split is None else getattr(found, split).get(name)

    def kept(self, name: str, measure: Measure) -> float | None:
        """A field such as `kept_macs` when it was measured; None where nobody knows."""
        found: float | None = getattr(self.measured[measure], name)
        return 1.0 if found is None and self.density == 1 else found


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows."""

    records: Sequence[Record]
    sweeps: Sequence[Sweep]
    runs: int

    @property
    def over(self) -> bool:
        """Whether there are sweeps, and none will change any more."""
        return bool(self.sweeps) and all(sweep.over for sweep in self.sweeps)


def read_runs(root: Path) -> ReportData:
    """Read all runs below `root`, unfinished ones as far as they are.

    A damaged file is left out, with a warning that names it.
    """
    folders, sweeps = read_folders(root)
    return ReportData(records_of(folders), sweeps, len(folders))


def merged(found: Sequence[ReportData]) -> ReportData:
    """Everything once: of a run that is in several places, the first counts.

    A ticket that was re-trained in any of them counts as re-trained.
    """
    records: dict[tuple[str, ...], Record] = {}
    for record in (record for data in found for record in data.records):
        again = record.retraining.name if record.retraining else ""
        records.setdefault(
            (record.task, record.row, record.folder.name, record.stage, again), record
        )
    retrained = {place[:-1] for place in records if place[-1]}
    kept = [r for place, r in records.items() if place[-1] or place[:-1] not in retrained]
    names = {f.name for r in kept for f in (r.folder, r.retraining) if f is not None}
    return ReportData(kept, [sweep for data in found for sweep in data.sweeps], len(names))


Key = tuple[Path, str, str]
"""Folder, row and stage: two rows of a sweep may share a run."""


def records_of(folders: Sequence[RunFolder]) -> list[Record]:
    """The records of runs; a re-training adds to the record of its ticket where it can."""
    parameters = _parameters(folders)
    records: dict[Key, Record] = {}
    for run in folders:
        if run.command != "retrain":
            own = parameters[run.path] if run.sweep_run is None else run.sweep_run.parameters
            for record in _FOUND[run.command](run, own):
                records[record.folder, record.row, record.stage] = record
    found = dict(records)
    tickets = _Tickets(found)
    extra: list[Record] = []
    for run in folders:
        if run.command != "retrain" or not run.results.stages:
            continue
        key = tickets.source(run)
        if key and key not in found:  # of a pruning there is one record, of its last stage
            key = (*key[:2], "fine-tuning")
        origin = found.get(key) if key else None
        record = _retrained(run, origin)
        joins = origin is not None and (record.task, record.row) == (origin.task, origin.row)
        if key and joins and "re-trained" not in records[key].measured:
            records[key] = record
        else:
            extra.append(record)
    return [*records.values(), *extra]


def _parameters(folders: Sequence[RunFolder]) -> dict[Path, dict[str, Any]]:
    rows: dict[tuple[str, str, str], list[RunFolder]] = {}
    for run in folders:
        if run.sweep_run is None:
            rows.setdefault((run.task, _row(run), run.command), []).append(run)
    return {path: own for row in rows.values() for path, own in run_parameters(row).items()}


def _dense(run: RunFolder, parameters: Mapping[str, Any]) -> Iterator[Record]:
    for stage in run.results.stages:
        yield replace(_record(run, stage, "trained", parameters), epochs=0)


def _searched(run: RunFolder, parameters: Mapping[str, Any]) -> Iterator[Record]:
    epochs = 0
    for stage in run.results.stages:
        epochs += stage.epochs
        yield replace(_record(run, stage, "searched", parameters), epochs=epochs)


def _pruned(run: RunFolder, parameters: Mapping[str, Any]) -> Iterator[Record]:
    """One record: fine-tuning keeps the mask of the search."""
    stages = {stage.stage: stage for stage in run.results.stages}
    search, tuned = stages.get("search"), stages.get("fine-tuning")
    if search is None:
        return
    record = _record(run, search, "searched", parameters)
    if tuned is not None:
        after = _record(run, tuned, "fine-tuned", parameters)
        measured = {**record.measured, **after.measured}
        record = replace(after, epochs=record.epochs, measured=measured)
    yield record


_FOUND = {"train": _dense, "search": _searched, "prune": _pruned}


def _record(
    run: RunFolder, stage: StageResult, measure: Measure, parameters: Mapping[str, Any]
) -> Record:
    number = re.fullmatch(r"round (\d+)", stage.stage)
    return Record(
        task=run.task,
        row=_row(run),
        command=run.command,
        method=run.method,
        parameters=parameters,
        seed=run.seed,
        folder=run.path,
        stage=stage.stage,
        round=int(number[1]) if number else None,
        density=stage.density,
        epochs=stage.epochs,
        measured={measure: stage},
        metrics=run.results.metrics,
        ticket=run.path / stage.ticket if stage.ticket and inside(stage.ticket, run.path) else None,
        layers=stage.layers,
        settings=run.settings,
        runs={run.key: read_origin(run.path)} if run.results.finished else {},
        speeds=read_speeds(run.path).stages.get(stage.stage, ()),
        conditions={**conditions(run.settings), "metric": run.results.metric.name},
    )


def _retrained(run: RunFolder, origin: Record | None) -> Record:
    """The record of the ticket `origin`, with what its re-training found."""
    stage = run.results.stages[-1]
    control = run.results.control
    own = replace(_record(run, stage, "re-trained", {}), epochs=0, retraining=run.path)
    if origin is None:
        return own
    row = run.sweep_run.row if run.sweep_run else origin.row
    if control and (run.sweep_run is None or row == origin.row):
        row = f"{origin.row}, {control}"
    joins = (run.task, row) == (origin.task, origin.row)
    parameters = dict(origin.parameters)
    if run.sweep_run is None and run.task == origin.task:
        searched = conditions(origin.settings)
        for name in different(conditions(run.settings), searched):
            parameters[f"re-training {name}"] = own.conditions.get(name)
    return replace(
        origin,
        task=run.task,
        row=row,
        parameters=parameters,
        density=stage.density,
        layers=origin.layers if joins else stage.layers,
        measured={**(origin.measured if joins else {}), **own.measured},
        metrics=own.metrics,
        retraining=run.path,
        control=control,
        runs={**origin.runs, **own.runs},
        speeds=own.speeds,
        conditions=own.conditions,
    )


def _row(run: RunFolder) -> str:
    if run.sweep_run:
        return DENSE if run.command == "train" else run.sweep_run.row
    return {"train": DENSE, "retrain": "ticket"}.get(run.command) or run.method or run.command


class _Tickets:
    """Where tickets are, to find the one that a re-training took."""

    def __init__(self, records: Mapping[Key, Record]) -> None:
        found = [(r.ticket, key) for key, r in records.items() if r.ticket is not None]
        self._exact = {resolved(ticket): key for ticket, key in found}
        self._by_name: dict[tuple[str, str], list[Key]] = {}
        for ticket, key in found:
            self._by_name.setdefault((key[0].name, ticket.name), []).append(key)

    def source(self, run: RunFolder) -> Key | None:
        """The record of the ticket that a run took: as a sweep says, or as its settings name it.

        If runs were moved together, folder and file still have the same names.
        """
        if run.source is not None and run.sweep_run is not None and run.sweep_run.stage:
            return *run.source, run.sweep_run.stage
        exact = self._exact.get(resolved(run.ticket or ""))
        same = self._by_name.get(run.ticket_key, [])
        beside = [key for key in same if key[0].parent == run.path.parent]
        return exact or next(iter(beside or same), None)
