"""Tables for the terminal, the page and documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from operator import itemgetter
from typing import get_args

from prunus.report.competition import Competition, competitions
from prunus.report.intervals import Estimate, Measured
from prunus.report.model import Comparison, Point
from prunus.report.parameters import as_text
from prunus.report.records import Measure, Record, ReportData
from prunus.report.select import cost_of, picks, verdict, whole_cost
from prunus.report.speeds import batches_of, speed_text
from prunus.tables import text_table
from prunus.tasks.metrics import MetricInfo

KEPT = MetricInfo("kept", higher_is_better=False, unit="%")
"""The density, as the metrics are shown."""


class Strong(str):
    """The text of a cell that stands out: a lead that the error does not explain."""


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; `left` columns hold words."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: frozenset[int] = frozenset({0})

    def __str__(self) -> str:
        rows = [[f"*{c}" if isinstance(c, Strong) else c for c in row] for row in self.rows]
        return text_table(self.header, rows, self.left)


def heading(metric: MetricInfo, name: str = "") -> str:
    """A column of values, `accuracy %` or `loss (nats)`; `name` replaces that of the metric."""
    name = name or metric.name
    if metric.unit == "%":
        return f"{name} %"
    return f"{name} ({metric.unit})" if metric.unit else name


def scaled(metric: MetricInfo, value: float) -> float:
    """The number that is shown under `heading`."""
    return 100 * value if metric.unit == "%" else value


def number(metric: MetricInfo, value: float) -> str:
    """The value without its unit, for a column that has one."""
    return f"{scaled(metric, value):.{2 if metric.unit == '%' else 4}f}"


def spread(metric: MetricInfo, value: Measured | Estimate) -> str:
    """The mean, with the error if it is known."""
    estimate = value.estimate if isinstance(value, Measured) else value
    mean = number(metric, estimate.mean)
    return f"{mean}±{number(metric, estimate.error)}" if isfinite(estimate.error) else mean


def spread_with_unit(metric: MetricInfo, value: Measured | Estimate) -> str:
    """The same for a sentence: `91.20±0.35 %`."""
    return f"{spread(metric, value)} {metric.unit}".rstrip()


def signed(metric: MetricInfo, difference: Estimate) -> str:
    """A difference, with its sign."""
    sign = "" if number(metric, difference.mean).startswith("-") else "+"
    return f"{sign}{spread(metric, difference)}"


def margin_text(comparison: Comparison) -> str:
    """`0.5 points`, `0.5 %`."""
    unit = "points" if comparison.metric.unit == "%" else "%"
    return f"{100 * comparison.margin:g} {unit}"


def selection_table(comparison: Comparison) -> Table:
    """The paper's table: the dense network, then what each rule picks from each series."""
    metric, dense = comparison.metric, comparison.dense
    sizes = _sizes_of(comparison.points)
    header = ["subnetwork", "method", "measured", "round", heading(KEPT), *sizes.values(),
              heading(metric), "against dense", "seeds", "epochs", "parallel",
              "settings"]  # fmt: skip
    rows = []
    if dense is not None:
        rows.append(["dense", "", "trained", "", "100.00", *["100.00"] * len(sizes),
                     spread(metric, dense), "", str(dense.count), "", "", ""])  # fmt: skip
    for rule, group in groupby(picks(comparison), key=itemgetter(0)):
        picked = list(group)
        if len(picked) > 1 and all(point is None for *_, point in picked):
            rows.append([rule, "all", "", "", "none", *[""] * (len(header) - 5)])
            continue
        for _, series, point in picked:
            start = [rule, series.row, series.measure]
            rows.append([*start, *_picked(comparison, point, sizes)])
    return Table(header, rows, left=frozenset({0, 1, 2, len(header) - 1}))


def _picked(comparison: Comparison, point: Point | None, sizes: Mapping[str, str]) -> list[str]:
    if point is None:
        return ["", "none", *[""] * (len(sizes) + 6)]
    metric, dense, cost = comparison.metric, comparison.dense, cost_of(point)
    return [
        str(point.round or ""),
        spread(KEPT, point.density),
        *_sizes(point, sizes),
        spread(metric, point.value),
        signed(metric, comparison.gain(point.value, dense)) if dense else "",
        str(point.value.count),
        f"{cost.sequential:.0f}",
        f"{cost.parallel:.0f}",
        as_text(point.parameters),
    ]


def cost_table(comparison: Comparison) -> Table:
    """What all subnetworks of a series cost to find."""
    rows = []
    for series in comparison.series:
        cost, count = whole_cost(series), str(len(series.points))
        rows.append([series.name, count, f"{cost.sequential:.0f}", f"{cost.parallel:.0f}"])
    return Table(["search", "subnetworks", "epochs", "parallel"], rows)


def density_table(comparison: Comparison) -> Table:
    """A row for each series, a column for each density at which several were measured.

    Leads are strong. A subnetwork that is not near enough to the target to compete has its own
    density behind its value.
    """
    metric = comparison.metric
    columns: dict[float, dict[Measure, Competition]] = {}
    for competition in competitions(comparison):
        columns.setdefault(competition.target, {})[competition.measure] = competition
    rows: list[list[str]] = []
    for series in comparison.series:
        cells: list[str] = []
        for held in columns.values():
            own = held.get(series.measure)
            entry = own.entries.get(series.row) if own else None
            text = spread(metric, entry.point.value) if entry else "–"
            if entry and not entry.competes:
                text += f" (at {number(KEPT, entry.point.density.mean)} %)"
            strong = own is not None and entry is not None and own.leads(series.row)
            cells.append(Strong(text) if strong else text)
        if any(cell != "–" for cell in cells):
            rows.append([series.name, *cells])
    titles = [f"{100 * target:.3g} % kept{_of_all(held)}" for target, held in columns.items()]
    return Table([f"{heading(metric)} with", *titles], rows)


def _of_all(held: Mapping[Measure, Competition]) -> str:
    """What those that compete at a density keep of all weights, where that is known."""
    competing = [entry.point for own in held.values() for entry in own.competing.values()]
    known = [kept.mean for point in competing if (kept := point.kept("network_density"))]
    if not known:
        return ""
    low, high = f"{100 * min(known):.3g}", f"{100 * max(known):.3g}"
    return f", {low if low == high else f'{low} to {high}'} % of all weights"


def points_table(comparison: Comparison, *, sizes: bool = False) -> Table:
    """Every point beside the dense network: how good when, and whether it matches.

    `sizes`: also what is connected, what is kept of the multiply-adds, and how many images a
    second the deployed network computes, where that is known.
    """
    metric, dense, points = comparison.metric, comparison.dense, ordered_points(comparison)
    measures = [m for m in get_args(Measure) if any(p.measured(m) for p in points)]
    shown = _sizes_of(points) if sizes else _sizes_of(points, ["network_density"])
    batches = batches_of(points) if sizes else []
    header = ["method", "settings", "stage", heading(KEPT), *shown.values(),
              *(f"images/s, batch {batch}" for batch in batches),
              *(heading(metric, measure) for measure in measures), "epochs"]  # fmt: skip
    rows = []
    if dense is not None:
        judged = f"matching on {comparison.split or 'test'}"
        header = [*header[:-1], "against dense", "epochs", judged]
        values = [""] * (len(measures) - 1) + [spread(metric, dense)]
        sized = [*["100.00"] * (1 + len(shown)), *[""] * len(batches)]
        rows.append(["dense", "", "training", *sized, *values, "", "", ""])
    for point in points:
        found = [point.measured(measure) for measure in measures]
        last = point.records[0].measured[point.series.measure]
        training = 0 if point.series.measure == "searched" else last.epochs
        row = [
            point.series.name,
            as_text(point.parameters),
            point.stage,
            spread(KEPT, point.density),
            *_sizes(point, shown),
            *(speed_text(point, batch) for batch in batches),
            *(spread(metric, value) if value else "" for value in found),
            str(point.records[0].epochs + training),
        ]
        if dense is not None:
            row.insert(-1, signed(metric, comparison.gain(point.value, dense)))
            row.append(verdict(comparison, point))
        rows.append(row)
    return Table(header, rows, frozenset({0, 1, 2}))


OF_ALL = "of all weights %"
SIZES = {
    "network_density": OF_ALL,
    "effective_density": "connected %",
    "kept_macs": "multiply-adds %",
}
"""Other sizes of a network than its density, as `StageResult` has them, and their columns."""


def _sizes_of(points: Sequence[Point], names: Iterable[str] = SIZES) -> dict[str, str]:
    """Columns for those of the sizes that are known."""
    return {name: SIZES[name] for name in names if any(p.kept(name) for p in points)}


def _sizes(point: Point, names: Iterable[str]) -> list[str]:
    found = [point.kept(name) for name in names]
    return [spread(KEPT, size) if size else "" for size in found]


def ordered_points(comparison: Comparison) -> list[Point]:
    """Points of the same parameters together (as where one row takes the rates of another), those
    that keep most weights first."""
    groups: dict[str, list[Point]] = {}
    for point in comparison.points:
        groups.setdefault(as_text(point.parameters), []).append(point)
    ordered = sorted(groups.values(), key=lambda points: -max(p.density.mean for p in points))
    return [point for points in ordered for point in points]


# How it was measured: the checklist of Blalock et al. (2020), appendix B


def checklist(data: ReportData, comparisons: Sequence[Comparison]) -> list[tuple[str, str]]:
    """What a reader needs to judge the numbers, as far as the results hold it."""
    origins = {key: o for r in data.records for key, o in r.runs.items() if o is not None}
    made = list(origins.values())
    code = sorted({o.commit or f"prunus {o.prunus}" for o in made})
    facts = [
        ("hardware", "; ".join(sorted({o.machine for o in made})) or "not recorded"),
        ("code", ", ".join(code) or "not recorded"),
    ]
    if made:
        hours = sum(o.seconds for o in made) / 3600
        facts.append(("time", f"{hours:.2f} hours in {len(made)} runs"))
    for comparison in comparisons:
        prefix = f"{comparison.title}: " if len(comparisons) > 1 else ""
        facts += [(f"{prefix}{name}", text) for name, text in _protocol(comparison).items() if text]
    facts.append(("density", "of the weights that could be removed (kept) and of all weights; of "
                  "the former also what is connected from input to output, and what is left of "
                  "their multiply-adds"))  # fmt: skip
    return facts


def _protocol(comparison: Comparison) -> dict[str, str]:
    epochs = {r.settings.get("recipe", {}).get("epochs") for r in comparison.baselines} - {None}
    samples = {n for p in comparison.points if (n := p.value.samples)}
    tried = [f"{s.name} {len({p.run for p in s.points})}" for s in comparison.series]
    seeds = {r.seed for s in comparison.series for r in s.records}
    judged = comparison.split or "test, for want of validation"
    return {
        "seeds": ", ".join(map(str, sorted(seeds))),
        "test samples": ", ".join(f"{n:,}" for n in sorted(samples)),
        "epochs of the dense network": ", ".join(map(str, sorted(epochs))),
        "settings tried": ", ".join(tried),
        "chosen by": f"{comparison.metric.name} on {judged} data",
    }


def raw_table(comparisons: Sequence[Comparison]) -> Table:
    """Every value of every seed, dense networks too."""
    rows = []
    for comparison in comparisons:
        dense: list[tuple[str, Record, Measure]] = [
            ("dense", record, "trained") for record in comparison.baselines
        ]
        found = [(s.name, r, s.measure) for s in comparison.series for r in s.records]
        for name, record, measure in [*dense, *found]:
            values = [record.value(measure, split) for split in ("validation", "test")]
            sizes = [record.kept(name, measure) for name in SIZES]
            rows.append(
                [comparison.title, name, as_text(record.parameters), record.stage, str(record.seed),
                 number(KEPT, record.density),
                 *("" if size is None else number(KEPT, size) for size in sizes), measure,
                 *("" if v is None else number(comparison.metric, v) for v in values)]
            )  # fmt: skip
    header = ["task", "method", "settings", "stage", "seed", heading(KEPT),
              *SIZES.values(), "measured", "validation", "test"]  # fmt: skip
    return Table(header, rows, frozenset({0, 1, 2, 3, header.index("measured")}))
