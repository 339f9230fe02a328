"""What the paper says of an experiment, and our numbers beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from prunus.files import write_atomically, write_json
from prunus.report.export import with_ends
from prunus.report.model import Comparison, Point
from prunus.report.parameters import as_text
from prunus.report.records import Record
from prunus.report.select import cost_of, picks
from prunus.report.tables import KEPT, OF_ALL, Table, heading, spread
from prunus.schema import Schema
from prunus.sweeps.experiment import Experiment
from prunus.tickets.ticket import Ticket

Percent = Annotated[float, Field(ge=0, le=100)]
Pick = Literal["dense", "sparsest matching", "best performing", "sparsest within 2 %", "nearest"]
"""Which of our subnetworks a number is compared with. `nearest`: the one of its density."""


class PaperNumber(Schema):
    """One line of a table, or a number of the text, in per cent as it is printed."""

    task: str
    pick: Pick = "nearest"
    row: str | None = None
    """The experiment's row of the same method; none for the dense network."""
    round: int | None = None
    kept: Percent | None = None
    sparsity: Percent | None = None
    accuracy: Percent | None = None

    @model_validator(mode="after")
    def _has_one_density(self) -> Self:
        if self.kept is not None and self.sparsity is not None:
            raise ValueError("kept and sparsity say the same: give one of them")
        if (self.row is None) != (self.pick == "dense"):
            raise ValueError("a number is of a row, unless it is that of the dense network")
        if self.pick == "nearest" and self.density is None:
            raise ValueError("the nearest subnetwork needs kept or sparsity")
        return self

    @property
    def density(self) -> float | None:
        """As a fraction."""
        if self.pick == "dense":
            return 1.0
        if self.sparsity is not None:
            return (100 - self.sparsity) / 100
        return None if self.kept is None else self.kept / 100


class Paper(Schema):
    """The `paper` section of an experiment: numbers and claims, and where they stand."""

    where: str
    """Such as `Table 1 and figure 1, section 5.1`."""
    claims: tuple[str, ...] = ()
    """What the text and the captions say, in a sentence each."""
    numbers: tuple[PaperNumber, ...] = ()
    blocks: int | None = Field(default=None, ge=1)
    """If it looks at blocks of consecutive layers: of how many."""

    def standing_in(self, stand_ins: Mapping[str, str]) -> Paper:
        """The same numbers beside other tasks."""
        numbers = tuple(
            number.model_copy(update={"task": stand_ins.get(number.task, number.task)})
            for number in self.numbers
        )
        return self.model_copy(update={"numbers": numbers})


def paper_of(experiment: Experiment, scale: str | None) -> Paper | None:
    """The paper's side of an experiment, beside the tasks that a scale puts in place of others."""
    if experiment.paper is None:
        return None
    stand_ins = experiment.scales[scale].get("stand_ins", {}) if scale else {}
    return Paper.parse(experiment.paper, within="paper").standing_in(stand_ins)


Pair = dict[str, Any]
"""A number of the paper and ours, as plain data; fractions, None where there is none."""

_FIELDS = ["task", "subnetwork", "method", "paper_round", "paper_density", "paper_accuracy",
           "round", "density", "network_density", "accuracy", "accuracy_low", "accuracy_high",
           "seeds", "search_epochs_sequential", "search_epochs_parallel"]  # fmt: skip
_NEARLY_NONE = 1e-9


def pairs(paper: Paper, ours: Sequence[Comparison]) -> list[Pair]:
    """Each number of the paper with what we found in its place, so far."""
    return [_pair(number, _on_task(number.task, ours)) for number in paper.numbers]


def pairs_table(found: Sequence[Pair]) -> Table:
    """The pairs for people, in per cent."""
    of_all = any(pair.get("network_density") is not None for pair in found)  # not in older files
    header = ["task", "subnetwork", "method", "paper: round", "kept %", "accuracy %",
              "ours: round", "kept %", *([OF_ALL] if of_all else []), "accuracy %"]  # fmt: skip
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
            *([_percent(pair["network_density"])] if of_all else []),
            _percent(pair["accuracy"]),
        ]
        for pair in found
    ]
    return Table(header, rows, left=frozenset({0, 1, 2}))


def figure_table(ours: Sequence[Comparison]) -> Table:
    """Every subnetwork, as means over seeds: what a figure of the paper draws."""
    metrics = list(dict.fromkeys(heading(comparison.metric) for comparison in ours))
    header = [
        "task",
        "method",
        "measured",
        "settings",
        "round",
        heading(KEPT),
        OF_ALL,
        " or ".join(metrics),
    ]
    rows = [
        [
            comparison.title,
            point.series.name,
            point.series.measure,
            as_text(point.parameters),
            str(point.round or ""),
            spread(KEPT, point.density),
            spread(KEPT, of_all) if (of_all := point.kept("network_density")) else "",
            spread(comparison.metric, point.value),
        ]
        for comparison in ours
        for point in comparison.points
    ]
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
        "dense": [
            {"task": c.title, **with_ends("accuracy", c.dense), "seeds": c.dense.count}
            for c in ours
            if c.dense is not None
        ],
        "pairs": found,
        "points": [_plain(c, point) for c in ours for point in c.points],
    }
    return [
        write_atomically(stem.with_name(f"{stem.name}.csv"), text.getvalue()),
        write_json(stem.with_name(f"{stem.name}.json"), content),
    ]


def _on_task(task: str, ours: Sequence[Comparison]) -> Comparison | None:
    return next((c for c in ours if c.task == task), None)


def _plain(comparison: Comparison, point: Point) -> dict[str, Any]:
    return {
        "task": comparison.title,
        "method": point.series.name,
        "measured": point.series.measure,
        "settings": as_text(point.parameters),
        **_numbers(point),
    }


def _numbers(point: Point) -> dict[str, Any]:
    cost, of_all = cost_of(point), point.kept("network_density")
    return {
        "round": point.round,
        "density": point.density.mean,
        "network_density": of_all.mean if of_all else None,
        **with_ends("accuracy", point.value),
        "seeds": point.value.count,
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
        own = with_ends("accuracy", ours.dense)
        pair |= {"density": 1.0, "network_density": 1.0, **own, "seeds": ours.dense.count}
    return pair


def _ours(number: PaperNumber, ours: Comparison) -> Point | None:
    if number.pick != "nearest":
        wanted = (number.pick, number.row)
        chosen = (point for rule, series, point in picks(ours) if (rule, series.row) == wanted)
        return next(chosen, None)
    density = max(number.density or 0.0, _NEARLY_NONE)
    near = [point for point in ours.points if point.series.row == number.row]
    return min(
        near,
        key=lambda p: abs(log(max(p.density.mean, _NEARLY_NONE) / density)),
        default=None,
    )


def _percent(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{100 * value:.{digits}f}"
