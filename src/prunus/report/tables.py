"""Tables for the terminal, the page and documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from prunus.report.model import Comparison, Point, Spread
from prunus.report.parameters import as_text
from prunus.report.records import Measure
from prunus.report.select import cost_of, picks, reaches, select, whole_cost
from prunus.tables import text_table
from prunus.tasks.metrics import MetricInfo

KEPT = MetricInfo("kept", higher_is_better=False, unit="%")
"""The density, as the metrics are shown."""


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; `marked` rows stand out, `left` columns hold words."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: frozenset[int] = frozenset({0})
    marked: frozenset[int] = frozenset()

    def __str__(self) -> str:
        return text_table(self.header, self.rows, self.left)


def heading(metric: MetricInfo) -> str:
    """A column of values: `accuracy %`, `loss (nats)`."""
    return _with_unit(metric, metric.name)


def _with_unit(metric: MetricInfo, name: str) -> str:
    if metric.unit == "%":
        return f"{name} %"
    return f"{name} ({metric.unit})" if metric.unit else name


def scaled(metric: MetricInfo, value: float) -> float:
    """The number that is shown under `heading`."""
    return 100 * value if metric.unit == "%" else value


def number(metric: MetricInfo, value: float) -> str:
    """The value without its unit, for a column that has one."""
    return f"{scaled(metric, value):.{2 if metric.unit == '%' else 4}f}"


def spread(metric: MetricInfo, value: Spread) -> str:
    """The mean, with the deviation if there is more than one value."""
    mean = number(metric, value.mean)
    return f"{mean}±{number(metric, value.deviation)}" if value.count > 1 else mean


def selection_table(comparison: Comparison) -> Table:
    """The paper's table: the dense network, then what each rule picks from each series."""
    metric, dense = comparison.metric, comparison.dense
    header = ["subnetwork", "method", "measured", "round", heading(KEPT), heading(metric), "seeds",
              "epochs", "parallel", "settings"]  # fmt: skip
    rows = []
    if dense is not None:
        rows.append(["dense", "", "trained", "", "100.00", spread(metric, dense), str(dense.count),
                     "", "", ""])  # fmt: skip
    for rule, series, point in picks(comparison):
        start = [rule, series.row, series.measure]
        if point is None:
            rows.append([*start, "", "none", "", "", "", "", ""])
            continue
        cost = cost_of(point)
        rows.append(
            [
                *start,
                str(point.round or ""),
                spread(KEPT, point.density),
                spread(metric, point.value),
                str(len(point.records)),
                f"{cost.sequential:.0f}",
                f"{cost.parallel:.0f}",
                as_text(point.parameters),
            ]
        )
    return Table(header, rows, left=frozenset({0, 1, 2, 9}))


def cost_table(comparison: Comparison) -> Table:
    """What all subnetworks of a series cost to find."""
    rows = []
    for series in comparison.series:
        cost, count = whole_cost(series), len(series.records) / len(series.seeds)
        rows.append([series.name, f"{count:.3g}", f"{cost.sequential:.0f}", f"{cost.parallel:.0f}"])
    return Table(["search", "subnetworks", "epochs", "parallel"], rows)


def points_table(comparison: Comparison) -> Table:
    """Every point beside the dense network: how good when, and whether it matches."""
    metric, dense, points = comparison.metric, comparison.dense, ordered_points(comparison)
    measures = [m for m in get_args(Measure) if any(p.measured(m) for p in points)]
    header = ["method", "settings", "stage", heading(KEPT),
              *(_with_unit(metric, measure) for measure in measures), "epochs"]  # fmt: skip
    rows, marked = [], set()
    if dense is not None:
        header = [*header, "matching"]
        values = [""] * (len(measures) - 1) + [spread(metric, dense)]
        rows.append(["dense", "", "training", "100.00", *values, "", ""])
    for point in points:
        found = [point.measured(measure) for measure in measures]
        last = point.records[0].measured[point.series.measure]
        searching = 0 if point.series.measure == "searched" else last.epochs
        row = [
            point.series.name,
            as_text(point.parameters),
            point.stage,
            spread(KEPT, point.density),
            *(spread(metric, value) if value else "" for value in found),
            str(point.records[0].epochs + searching),
        ]
        if dense is not None:
            matches = reaches(point, dense.mean)
            row.append("yes" if matches else "no")
            if matches:
                marked.add(len(rows))
        rows.append(row)
    return Table(header, rows, frozenset({0, 1, 2}), frozenset(marked))


def ordered_points(comparison: Comparison) -> list[Point]:
    """Points of the same parameters together: where one row takes the rates of another."""
    points = comparison.points
    order = list(dict.fromkeys(as_text(point.parameters) for point in points))
    return sorted(points, key=lambda point: order.index(as_text(point.parameters)))


def verdict(comparison: Comparison) -> str:
    """What the numbers say about matching, in a sentence for each series."""
    metric, dense = comparison.metric, comparison.dense
    if dense is None:
        return "There is no dense network to compare with."
    sentences = [f"The dense network reaches {metric.text(dense.mean)}."]
    for series in comparison.series:
        point = select(series, dense.mean)["sparsest matching"]
        if point is None:
            sentences.append(f"No {series.name} subnetwork matches it.")
        else:
            sentences.append(
                f"The sparsest {series.name} subnetwork that matches it keeps "
                f"{KEPT.text(point.density.mean)} of the weights and reaches "
                f"{metric.text(point.value.mean)}."
            )
    return " ".join(sentences)
