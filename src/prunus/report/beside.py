"""Our numbers beside the paper's."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

from prunus.files import write_atomically
from prunus.report.page import Table
from prunus.report.runs import Record, as_text
from prunus.report.selection import Line, Selection
from prunus.report.summary import Spread
from prunus.report.tables import TaskReport, round_range, spread
from prunus.search.sweep.paper import Paper, PaperNumber
from prunus.ticket import Ticket

Comparison = dict[str, Any]
"""One number of the paper and ours, as plain data; fractions of 1, None where there is none."""


def comparisons(paper: Paper, reports: Sequence[TaskReport]) -> list[Comparison]:
    """Each number of the paper with what we found in its place, so far."""
    by_task = {report.task: report for report in reports}
    return [_compare(number, by_task.get(number.task)) for number in paper.numbers]


def comparison_table(found: Sequence[Comparison]) -> Table:
    """The comparisons for people, in per cent."""
    header = ["task", "subnetwork", "method", "paper: round", "kept %", "accuracy %",
              "ours: round", "kept %", "accuracy %"]  # fmt: skip
    rows = [
        [
            row["task"],
            row["subnetwork"],
            row["method"] or "",
            str(row["paper_round"] or ""),
            _percent(row["paper_density"], 1),
            _percent(row["paper_accuracy"]),
            row["round"] or "",
            _percent(row["density"]) or "none",
            _percent(row["accuracy"]),
        ]
        for row in found
    ]
    return Table(header, rows, left=frozenset({0, 1, 2}))


def points_table(reports: Sequence[TaskReport]) -> Table:
    """Every subnetwork, with means over seeds: what a figure of the paper draws."""
    members: dict[tuple[str, str, str, str, str], list[tuple[Line, Record]]] = {}
    for report in reports:
        for line in report.lines:
            for record in line.records:
                key = (line.task, line.label, line.measure, as_text(record.parameters),
                       str(record.round or ""))  # fmt: skip
                members.setdefault(key, []).append((line, record))
    rows = []
    for key, found in members.items():
        density = Spread.of([record.density for _, record in found])
        accuracy = Spread.of([line.accuracy(record) for line, record in found])
        rows.append([*key, spread(density, len(found)), spread(accuracy, len(found))])
    header = ["task", "method", "measured", "settings", "round", "kept %", "accuracy %"]
    return Table(header, rows, left=frozenset({0, 1, 2, 3}))


def blocks_table(records: Sequence[Record], size: int) -> Table:
    """What each subnetwork removes of blocks of `size` consecutive layers, in per cent."""
    rows = []
    for record in records:
        if record.ticket is not None and record.command == "search":
            layers = Ticket.load(record.ticket).mask.layers
            groups = [layers[start : start + size] for start in range(0, len(layers), size)]
            kept = [sum(n.kept for n in group) / sum(n.total for n in group) for group in groups]
            label = f"{record.row}, seed {record.seed}, {record.stage}"
            rows.append([label, *(_percent(1 - fraction) for fraction in kept)])
    width = max((len(row) for row in rows), default=1)
    header = ["removed %", *(f"block {number}" for number in range(1, width))]
    return Table(header, [row + [""] * (width - len(row)) for row in rows])


def points(reports: Sequence[TaskReport]) -> list[dict[str, Any]]:
    """Every subnetwork that was measured, as plain data."""
    return [
        {
            "task": line.task,
            "method": line.row,
            "measured": line.measure,
            "parameters": as_text(record.parameters),
            "seed": record.seed,
            "round": record.round,
            "density": record.density,
            "accuracy": line.accuracy(record),
            "search_epochs": record.epochs,
        }
        for report in reports
        for line in report.lines
        for record in line.records
    ]


def write_comparisons(
    stem: Path, about: Mapping[str, Any], paper: Paper, reports: Sequence[TaskReport]
) -> list[Path]:
    """The comparisons as `STEM.csv`; with all points and claims as `STEM.json`."""
    found = comparisons(paper, reports)
    text = io.StringIO()
    writer = csv.DictWriter(text, _FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    content = {
        **about,
        "where": paper.where,
        "claims": paper.claims,
        "comparisons": found,
        "points": points(reports),
    }
    return [
        write_atomically(stem.with_name(f"{stem.name}.csv"), text.getvalue()),
        write_atomically(stem.with_name(f"{stem.name}.json"), json.dumps(content, indent=1) + "\n"),
    ]


_FIELDS = ["task", "subnetwork", "method", "paper_round", "paper_density", "paper_accuracy",
           "round", "density", "density_deviation", "accuracy", "accuracy_deviation", "seeds",
           "search_epochs_sequential", "search_epochs_parallel"]  # fmt: skip


def _compare(number: PaperNumber, report: TaskReport | None) -> Comparison:
    row: Comparison = dict.fromkeys(_FIELDS)
    row |= {
        "task": number.task,
        "subnetwork": number.pick,
        "method": number.row,
        "paper_round": number.round,
        "paper_density": number.density,
        "paper_accuracy": None if number.accuracy is None else number.accuracy / 100,
    }
    if report is None:
        return row
    if number.pick == "dense":
        if report.dense is not None:
            row |= {
                "density": 1.0,
                "accuracy": report.dense.mean,
                "accuracy_deviation": report.dense.deviation,
                "seeds": report.dense_seeds,
            }
        return row
    ours = _ours(number, report)
    if ours is not None:
        row |= {
            "round": round_range(ours.rounds),
            "density": ours.density.mean,
            "density_deviation": ours.density.deviation,
            "accuracy": ours.accuracy.mean,
            "accuracy_deviation": ours.accuracy.deviation,
            "seeds": len(ours.picks),
            "search_epochs_sequential": ours.cost.sequential,
            "search_epochs_parallel": ours.cost.parallel,
        }
    return row


def _ours(number: PaperNumber, report: TaskReport) -> Selection | None:
    if number.pick != "nearest":
        wanted = (number.pick, number.row)
        return next((s for rule, line, s in report.named if (rule, line.row) == wanted), None)
    line = next((line for line in report.lines if line.row == number.row), None)
    return None if line is None else _nearest(line, number)


def _nearest(line: Line, number: PaperNumber) -> Selection | None:
    """For each seed the subnetwork whose density is nearest, as a ratio."""
    assert number.density is not None

    def distance(record: Record) -> float:
        return abs(log(max(record.density, 1e-9) / max(number.density or 0.0, 1e-9)))

    picks = {
        seed: min((r for r in line.records if r.seed == seed), key=distance) for seed in line.seeds
    }
    return Selection(line, "nearest", picks)


def _percent(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{100 * value:.{digits}f}"
