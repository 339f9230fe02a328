"""Our numbers beside the paper's."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

from prunus.report.comparison import Comparison
from prunus.report.curves import Point, points
from prunus.report.page import Table
from prunus.report.parameters import as_text
from prunus.report.runs import Record
from prunus.report.selection import cost_of
from prunus.report.tables import spread
from prunus.search.sweep.paper import Paper, PaperNumber
from prunus.ticket import Ticket
from prunus_runtime.atomic import write_atomically

Pair = dict[str, Any]
"""A number of the paper and ours, as plain data; fractions of 1, None where there is none."""

_FIELDS = ["task", "subnetwork", "method", "paper_round", "paper_density", "paper_accuracy",
           "round", "density", "density_deviation", "accuracy", "accuracy_deviation", "seeds",
           "search_epochs_sequential", "search_epochs_parallel"]  # fmt: skip
_NEARLY_NONE = 1e-9


def pairs(paper: Paper, ours: Sequence[Comparison]) -> list[Pair]:
    """Each number of the paper with what we found in its place, so far."""
    return [_pair(number, _on_task(number.task, ours)) for number in paper.numbers]


def pairs_table(found: Sequence[Pair]) -> Table:
    """The pairs for people, in per cent."""
    header = ["task", "subnetwork", "method", "paper: round", "kept %", "accuracy %",
              "ours: round", "kept %", "accuracy %"]  # fmt: skip
    rows = [
        [
            pair["task"],
            pair["subnetwork"],
            pair["method"] or "",
            str(pair["paper_round"] or ""),
            _percent(pair["paper_density"], 1),
            _percent(pair["paper_accuracy"]),
            str(pair["round"] or ""),
            _percent(pair["density"]) or "none",
            _percent(pair["accuracy"]),
        ]
        for pair in found
    ]
    return Table(header, rows, left=frozenset({0, 1, 2}))


def points_table(ours: Sequence[Comparison]) -> Table:
    """Every subnetwork, as means over seeds: what a figure of the paper draws."""
    rows = [
        [
            comparison.title,
            point.line.label,
            point.line.measure,
            as_text(point.parameters),
            str(point.round or ""),
            spread(point.density, len(point.records)),
            spread(point.accuracy, len(point.records)),
        ]
        for comparison, point in _points(ours)
    ]
    header = ["task", "method", "measured", "settings", "round", "kept %", "accuracy %"]
    return Table(header, rows, left=frozenset({0, 1, 2, 3}))


def blocks_table(records: Sequence[Record], size: int) -> Table:
    """What each search removed of blocks of `size` consecutive layers, in per cent."""
    rows = []
    for record in records:
        if record.ticket is not None and record.command == "search":
            layers = Ticket.load(record.ticket).mask.layers
            groups = [layers[start : start + size] for start in range(0, len(layers), size)]
            kept = [sum(n.kept for n in group) / sum(n.total for n in group) for group in groups]
            label = f"{record.row}, {record.stage}, seed {record.seed}"
            rows.append([label, *(_percent(1 - fraction) for fraction in kept)])
    width = max(map(len, rows), default=1)
    header = ["removed %", *(f"block {number}" for number in range(1, width))]
    return Table(header, [row + [""] * (width - len(row)) for row in rows])


def write_pairs(
    stem: Path, about: Mapping[str, Any], paper: Paper, ours: Sequence[Comparison]
) -> list[Path]:
    """The pairs as `STEM.csv`; with claims and every subnetwork as `STEM.json`."""
    found = pairs(paper, ours)
    text = io.StringIO()
    writer = csv.DictWriter(text, _FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    content = {
        **about,
        "where": paper.where,
        "claims": paper.claims,
        "pairs": found,
        "points": [_plain(comparison, point) for comparison, point in _points(ours)],
    }
    return [
        write_atomically(stem.with_name(f"{stem.name}.csv"), text.getvalue()),
        write_atomically(stem.with_name(f"{stem.name}.json"), json.dumps(content, indent=1) + "\n"),
    ]


def _on_task(task: str, ours: Sequence[Comparison]) -> Comparison | None:
    return next((c for c in ours if c.task == task), None)


def _points(ours: Sequence[Comparison]) -> list[tuple[Comparison, Point]]:
    return [(c, point) for c in ours for line in c.lines for point in points(line)]


def _plain(comparison: Comparison, point: Point) -> dict[str, Any]:
    return {
        "task": comparison.title,
        "method": point.line.label,
        "measured": point.line.measure,
        "settings": as_text(point.parameters),
        **_numbers(point),
    }


def _numbers(point: Point) -> dict[str, Any]:
    cost = cost_of(point)
    return {
        "round": point.round,
        "density": point.density.mean,
        "density_deviation": point.density.deviation,
        "accuracy": point.accuracy.mean,
        "accuracy_deviation": point.accuracy.deviation,
        "seeds": len(point.records),
        "search_epochs_sequential": cost.sequential,
        "search_epochs_parallel": cost.parallel,
    }


def _pair(number: PaperNumber, ours: Comparison | None) -> Pair:
    pair: Pair = dict.fromkeys(_FIELDS)
    pair |= {
        "task": number.task,
        "subnetwork": number.pick,
        "method": number.row,
        "paper_round": number.round,
        "paper_density": number.density,
        "paper_accuracy": None if number.accuracy is None else number.accuracy / 100,
    }
    if ours is None:
        return pair
    if number.pick != "dense":
        point = _ours(number, ours)
        return pair if point is None else pair | _numbers(point)
    if ours.dense is not None:
        pair |= {
            "density": 1.0,
            "accuracy": ours.dense.mean,
            "accuracy_deviation": ours.dense.deviation,
            "seeds": ours.dense_seeds,
        }
    return pair


def _ours(number: PaperNumber, ours: Comparison) -> Point | None:
    if number.pick != "nearest":
        wanted = (number.pick, number.row)
        return next((p for rule, line, p in ours.picks if (rule, line.row) == wanted), None)
    density = max(number.density or 0.0, _NEARLY_NONE)
    near = [point for line in ours.lines if line.row == number.row for point in points(line)]
    return min(
        near,
        key=lambda p: abs(log(max(p.density.mean, _NEARLY_NONE) / density)),
        default=None,
    )


def _percent(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{100 * value:.{digits}f}"
