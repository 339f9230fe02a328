"""The selections as tables, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prunus.report.page import Table
from prunus.report.runs import Record, as_text
from prunus.report.selection import (
    RULES,
    Line,
    Selection,
    dense_accuracy,
    lines,
    select,
    whole_cost,
)
from prunus.report.summary import Spread


@dataclass(frozen=True)
class TaskReport:
    """All that is to be said about one task."""

    task: str
    dense: Spread | None
    dense_seeds: int
    lines: Sequence[Line]
    selections: Sequence[Selection | None]
    """For each rule, and in it for each line."""

    @property
    def named(self) -> list[tuple[str, Line, Selection | None]]:
        """Rule, line and selection."""
        pairs = [(rule, line) for rule in RULES for line in self.lines]
        return [(*pair, found) for pair, found in zip(pairs, self.selections, strict=True)]


def task_reports(records: Sequence[Record]) -> list[TaskReport]:
    """One for each task, in the order of the records."""
    found = lines(records)
    result = []
    for task in dict.fromkeys(record.task for record in records):
        dense = dense_accuracy(records, task)
        own = [line for line in found if line.task == task]
        chosen = [select(line, dense.mean if dense else None) for line in own]
        seeds = {r.seed for r in records if r.task == task and r.command == "train"}
        result.append(
            TaskReport(task, dense, len(seeds), own, [c[rule] for rule in RULES for c in chosen])
        )
    return result


HEADER = ["subnetwork", "method", "measured", "round", "kept %", "accuracy %", "seeds", "epochs",
          "parallel", "settings"]  # fmt: skip


def selection_table(report: TaskReport) -> Table:
    """The paper's table: the dense network, then what each rule picks from each line."""
    rows = []
    if report.dense is not None:
        accuracy = spread(report.dense, report.dense_seeds)
        rows.append(["dense", "", "trained", "", "100.00", accuracy, str(report.dense_seeds),
                     "", "", ""])  # fmt: skip
    for rule, line, found in report.named:
        start = [rule, line.row, line.measure]
        if found is None:
            rows.append([*start, "", "none", "", f"0/{len(line.seeds)}", "", "", ""])
            continue
        seeds, cost = len(found.picks), found.cost
        rows.append(
            [
                *start,
                round_range(found.rounds),
                spread(found.density, seeds),
                spread(found.accuracy, seeds),
                f"{seeds}/{len(line.seeds)}",
                f"{cost.sequential:.0f}",
                f"{cost.parallel:.0f}",
                "; ".join(dict.fromkeys(as_text(r.parameters) for r in found.picks.values())),
            ]
        )
    return Table(HEADER, rows, left=frozenset({0, 1, 2, 9}))


def cost_table(report: TaskReport) -> Table:
    """What all subnetworks of a line cost to find."""
    header = ["search", "subnetworks", "epochs", "parallel"]
    rows = []
    for line in report.lines:
        cost, count = whole_cost(line), len(line.records) / len(line.seeds)
        rows.append([line.label, f"{count:.3g}", f"{cost.sequential:.0f}", f"{cost.parallel:.0f}"])
    return Table(header, rows)


def spread(value: Spread, count: int) -> str:
    """In per cent, with the deviation if there is more than one value."""
    return str(value) if count > 1 else f"{100 * value.mean:.2f}"


def round_range(rounds: Sequence[int]) -> str:
    """`4`, or `3-5`; nothing for methods without rounds."""
    if not rounds:
        return ""
    return str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}-{rounds[-1]}"
