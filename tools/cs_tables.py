"""What was measured on CS itself, as tables: means and deviations over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from prunus.report.records import Measure, Record

SCALES = ("init", "none")
FOUND: tuple[Measure, ...] = ("searched", "re-trained")

Table = tuple[list[str], list[list[str]]]


def over_seeds(records: Sequence[Record], measure: Measure) -> str:
    values = [100 * value for record in records if (value := record.value(measure)) is not None]
    return f"{mean(values):.2f}±{stdev(values):.2f}"


def mask_scale(records: Sequence[Record]) -> Table:
    """Both scales side by side, for each network, learning rate and density."""
    cells: dict[tuple[str, float, str, str | None], list[Record]] = {}
    for r in records:
        place = r.task, r.settings["recipe"]["lr"], f"{r.density:.0%}"
        cells.setdefault((*place, r.parameters.get("mask_scale")), []).append(r)
    columns = [(measure, scale) for measure in FOUND for scale in SCALES]
    rows = [
        [task, str(lr), over_seeds(cells[task, lr, "100%", None], "trained"), density]
        + [over_seeds(cells[task, lr, density, scale], measure) for measure, scale in columns]
        for task, lr, density, first in cells
        if first == SCALES[0]
    ]
    header = ["network", "learning rate", "dense", "kept"]
    return [*header, *(f"`{scale}`, {measure}" for measure, scale in columns)], rows


def budget_rounds(records: Sequence[Record]) -> Table:
    """The tickets of the last rounds, by density."""
    cells: dict[str, dict[str, list[Record]]] = {}
    for r in records:
        if "re-trained" in r.measured:
            cells.setdefault(r.row, {}).setdefault(f"{r.density:.0%}", []).append(r)
    rows = [
        [row, measure, *(over_seeds(found, measure) for found in by_density.values())]
        for row, by_density in cells.items()
        for measure in FOUND
    ]
    return ["", "", *next(iter(cells.values()))], rows


def settling(runs: Sequence[dict[str, Any]]) -> Table:
    """Runs whose density reached its target at different times."""
    rows = [
        [f"{run['settled']:.2f}", f"{run['training_loss']:.3f}"]
        + [f"{100 * run[kind]:.1f}" for kind in ("validation", "test")]
        for run in runs
    ]
    return ["part of the round", "training loss", "validation", "test"], rows


def cost_powers(runs: Sequence[dict[str, Any]]) -> Table:
    """Runs that measured scores by different powers of their cost: a column for each seed."""
    seeds = sorted({run["seed"] for run in runs})
    rows = []
    for power in sorted({run["power"] for run in runs}):
        own = {run["seed"]: run for run in runs if run["power"] == power}
        row = [f"{power:g}", f"{100 * mean(run['density'] for run in own.values()):.1f}"]
        for split in ("validation", "test"):
            values = [100 * own[seed][split] for seed in seeds]
            row += [", ".join(f"{value:.1f}" for value in values), f"{mean(values):.1f}"]
        rows.append(row)
    header = ["power of c", "weights kept %", "validation", "mean", "test", "mean"]
    return header, rows
