"""What was measured on CS itself, as tables: means and deviations over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev

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
