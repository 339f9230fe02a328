"""What belongs together in tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prunus.report.runs import Measure, Record


@dataclass(frozen=True)
class Line:
    """A method on a task, measured in one way."""

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


def lines(records: Sequence[Record]) -> list[Line]:
    """The lines of one task, without the dense networks, in the order of the records."""
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
        Line(
            row=row,
            label=f"{row}, {measure}" if rows.count(row) > 1 else row,
            method=group[0].method,
            measure=measure,
            records=group,
        )
        for row, measure, group in found
    ]


def _measures(records: Sequence[Record]) -> list[Measure]:
    """What has been done with any of them: the others wait for it, rather than be mixed."""
    order: tuple[Measure, ...] = ("fine-tuned", "re-trained")
    return [m for m in order if any(m in r.accuracies for r in records)] or ["searched"]


def _measured(records: Sequence[Record], measure: Measure) -> list[Record]:
    """Copies of a run, as in two sweeps, count once: the folder's name tells, and its hash."""
    found: dict[object, Record] = {}
    for record in records:
        if record.accuracy(measure) is not None:
            again = record.retraining.name if record.retraining else None
            found.setdefault((record.folder.name, record.stage, again), record)
    return list(found.values())
