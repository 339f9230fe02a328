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
from prunus.report.comparison import Comparison
from prunus.report.curves import Point, points
from prunus.report.page import Table
from prunus.report.parameters import as_text
from prunus.report.runs import Record
from prunus.report.selection import cost_of
from prunus.report.tables import spread
from prunus.search.sweep.paper import Paper, PaperNumber
from prunus.ticket import Ticket

Row = dict[str, Any]
"""One number of the paper and ours, as plain data; fractions of 1, None where there is none."""


def beside_paper(paper: Paper, reports: Sequence[Comparison]) -> list[Row]:
    """Each number of the paper with what we found in its place, so far."""
    by_task = {report.task: report for report in reports}
    return [_compare(number, by_task.get(number.task)) for number in paper.numbers]


def beside_table(found: Sequence[Row]) -> Table:
    """The same for people, in per cent."""
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
            str(row["round"] or ""),
            _percent(row["density"]) or "none",
            _percent(row["accuracy"]),
        ]
        for row in found
    ]
    return Table(header, rows, left=frozenset({0, 1, 2}))


def points_table(reports: Sequence[Comparison]) -> Table:
    """Every subnetwork, with means over seeds: what a figure of the paper draws."""
    rows = []
    for report in reports:
        for line in report.lines:
            for point in points(line):
                seeds = len(point.records)
                rows.append(
                    [
                        report.task,
                        line.row,
                        line.measure,
                        as_text(point.parameters),
                        str(point.round or ""),
                        spread(point.density, seeds),
                        spread(point.accuracy, seeds),
                    ]
                )
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


def all_points(reports: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Every subnetwork that was measured, as plain data."""
    return [
        {
            "task": report.task,
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


def write_beside(
    stem: Path, about: Mapping[str, Any], paper: Paper, reports: Sequence[Comparison]
) -> list[Path]:
    """The numbers as `STEM.csv`; with all points and claims as `STEM.json`."""
    found = beside_paper(paper, reports)
    text = io.StringIO()
    writer = csv.DictWriter(text, _FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    content = {
        **about,
        "where": paper.where,
        "claims": paper.claims,
        "comparisons": found,
        "points": all_points(reports),
    }
    return [
        write_atomically(stem.with_name(f"{stem.name}.csv"), text.getvalue()),
        write_atomically(stem.with_name(f"{stem.name}.json"), json.dumps(content, indent=1) + "\n"),
    ]


_FIELDS = ["task", "subnetwork", "method", "paper_round", "paper_density", "paper_accuracy",
           "round", "density", "density_deviation", "accuracy", "accuracy_deviation", "seeds",
           "search_epochs_sequential", "search_epochs_parallel"]  # fmt: skip


def _compare(number: PaperNumber, report: Comparison | None) -> Row:
    row: Row = dict.fromkeys(_FIELDS)
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
        cost = cost_of(ours)
        row |= {
            "round": ours.round,
            "density": ours.density.mean,
            "density_deviation": ours.density.deviation,
            "accuracy": ours.accuracy.mean,
            "accuracy_deviation": ours.accuracy.deviation,
            "seeds": len(ours.records),
            "search_epochs_sequential": cost.sequential,
            "search_epochs_parallel": cost.parallel,
        }
    return row


def _ours(number: PaperNumber, report: Comparison) -> Point | None:
    if number.pick != "nearest":
        wanted = (number.pick, number.row)
        return next((p for rule, line, p in report.picks if (rule, line.row) == wanted), None)
    found = [p for line in report.lines if line.row == number.row for p in points(line)]
    return min(found, key=lambda point: _distance(point, number), default=None)


def _distance(point: Point, number: PaperNumber) -> float:
    """Between densities, as a ratio."""
    assert number.density is not None
    return abs(log(max(point.density.mean, 1e-9) / max(number.density, 1e-9)))


def _percent(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{100 * value:.{digits}f}"
