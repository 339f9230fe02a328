"""What was measured on CS itself, as tables: means and deviations over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from prunus.report.records import Measure, Record

SCALES = ("init", "constant", "none")
FOUND: tuple[Measure, ...] = ("searched", "re-trained")

Table = tuple[list[str], list[list[str]]]


def over_seeds(records: Sequence[Record], measure: Measure) -> str:
    return percent([value for r in records if (value := r.value(measure)) is not None])


def percent(values: Sequence[float]) -> str:
    return f"{100 * mean(values):.2f}±{100 * stdev(values):.2f}"


def mask_scale(records: Sequence[Record]) -> Table:
    """The scales side by side, for each network, learning rate and density."""
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


def score_lr(records: Sequence[Record]) -> Table:
    """Rates of the scores, as multiples of the automatic one, and IMP at the same densities."""
    cells: dict[tuple[float, float], dict[str, list[Record]]] = {}
    for r in records:
        if "re-trained" in r.measured:
            place = r.parameters["score_lr"], r.parameters["mask_init"]
            cells.setdefault(place, {}).setdefault(r.row, []).append(r)
    _, automatic, _ = sorted({rate for rate, _ in cells})
    rows = []
    for rate, mask_init in sorted(cells, key=lambda place: (place[0], -place[1])):
        cs, imp = (cells[rate, mask_init][row] for row in ("CS", "IMP"))
        row = [f"{rate / automatic:.1f}", f"{mask_init:g}", percent([r.density for r in cs])]
        rows.append([*row, *(over_seeds(cs, m) for m in FOUND), over_seeds(imp, "re-trained")])
    header = ["score_lr factor", "mask_init", "kept %", "searched %", "re-trained %"]
    return [*header, "IMP re-trained %"], rows


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
    """Runs that measured scores by different powers of their cost: a number for each seed."""
    rows = []
    for task, power in dict.fromkeys((run["task"], run["power"]) for run in runs):
        own = [run for run in runs if (run["task"], run["power"]) == (task, power)]
        row = [task.partition("/")[2], f"{power:g}"]
        row.append(f"{100 * mean(run['density'] for run in own):.1f}")
        for split in ("validation", "test"):
            values = [100 * run[split] for run in sorted(own, key=lambda run: run["seed"])]
            row += [", ".join(f"{value:.1f}" for value in values), f"{mean(values):.1f}"]
        rows.append(row)
    header = ["network", "power of c", "weights kept %", "validation", "mean", "test", "mean"]
    return header, rows
