"""The selections as tables, for the terminal and the page."""

from __future__ import annotations

from prunus.report.comparison import Comparison
from prunus.report.page import Table
from prunus.report.parameters import as_text
from prunus.report.selection import cost_of, whole_cost
from prunus.report.summary import Spread

HEADER = ["subnetwork", "method", "measured", "round", "kept %", "accuracy %", "seeds", "epochs",
          "parallel", "settings"]  # fmt: skip


def selection_table(report: Comparison) -> Table:
    """The paper's table: the dense network, then what each rule picks from each line."""
    rows = []
    if report.dense is not None:
        accuracy = spread(report.dense, report.dense_seeds)
        rows.append(["dense", "", "trained", "", "100.00", accuracy, str(report.dense_seeds),
                     "", "", ""])  # fmt: skip
    for rule, line, point in report.picks:
        start = [rule, line.row, line.measure]
        if point is None:
            rows.append([*start, "", "none", "", "", "", "", ""])
            continue
        seeds, cost = len(point.records), cost_of(point)
        rows.append(
            [
                *start,
                str(point.round or ""),
                spread(point.density, seeds),
                spread(point.accuracy, seeds),
                str(seeds),
                f"{cost.sequential:.0f}",
                f"{cost.parallel:.0f}",
                as_text(point.parameters),
            ]
        )
    return Table(HEADER, rows, left=frozenset({0, 1, 2, 9}))


def cost_table(report: Comparison) -> Table:
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
