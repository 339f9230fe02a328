"""The selections as files that go into a paper or a notebook: CSV, Parquet and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from prunus.errors import SettingError, how_to_install
from prunus.files import write_atomically
from prunus.report.intervals import Estimate, Measured
from prunus.report.model import Comparison, Point
from prunus.report.parameters import as_text
from prunus.report.select import cost_of, picks
from prunus.report.tables import SIZES, selection_table


def flat(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The selections as plain data: one row for each task, rule and series; raw values.

    `_low` and `_high` are the ends of 95 % intervals, None where they are not known.
    """
    rows: list[dict[str, Any]] = []
    for comparison in comparisons:
        dense = comparison.dense
        for rule, series, point in picks(comparison):
            cost = cost_of(point) if point else None
            gain = comparison.gain(point.value, dense) if point and dense else None
            rows.append(
                {
                    "task": comparison.title,
                    "selection": rule,
                    "picked_by": comparison.split or "test",
                    "margin": comparison.margin,
                    "method": series.row,
                    "measured": series.measure,
                    "settings": as_text(point.parameters) if point else None,
                    "round": point.round if point else None,
                    "seeds": point.value.count if point else 0,
                    "metric": comparison.metric.name,
                    **with_ends("dense", dense),
                    **with_ends("density", point.density if point else None),
                    **_sizes(point),
                    **with_ends("value", point.value if point else None),
                    **with_ends("gain", gain),
                    "search_epochs_sequential": cost.sequential if cost else None,
                    "search_epochs_parallel": cost.parallel if cost else None,
                }
            )
    return rows


def _sizes(point: Point | None) -> dict[str, float | None]:
    known = {name: point.kept(name) if point else None for name in SIZES}
    return {key: v for name, size in known.items() for key, v in with_ends(name, size).items()}


def with_ends(name: str, value: Measured | Estimate | None) -> dict[str, float | None]:
    """A mean and the ends of its interval, as plain data."""
    found = value.estimate if isinstance(value, Measured) else value
    values = (found.mean, found.low, found.high) if found else (None, None, None)
    names = (name, f"{name}_low", f"{name}_high")
    known = (v if v is not None and isfinite(v) else None for v in values)
    return dict(zip(names, known, strict=True))


def write_csv(path: Path, comparisons: Sequence[Comparison]) -> Path:
    rows = flat(comparisons)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_atomically(path, text.getvalue())


def write_parquet(path: Path, comparisons: Sequence[Comparison]) -> Path:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise SettingError(
            f"Parquet files need pyarrow: {how_to_install('parquet')}, or use --csv"
        ) from error
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(flat(comparisons)), buffer)
    return write_atomically(path, buffer.getvalue())


def write_latex(path: Path, comparisons: Sequence[Comparison]) -> Path:
    r"""One `table` for each task; the document needs `\usepackage{booktabs}`."""
    return write_atomically(path, "\n".join(map(_latex, comparisons)))


def _latex(comparison: Comparison) -> str:
    table = selection_table(comparison)
    columns = [i for i, name in enumerate(table.header) if name not in ("seeds", "settings")]
    groups: dict[str, list[str]] = {}
    for row in table.rows:
        cells = [latex_escape(row[i]).replace("±", r"$\pm$") for i in columns]
        groups.setdefault(row[0], []).append(" & ".join(cells) + r" \\")
    body = "\n\\midrule\n".join("\n".join(lines) for lines in groups.values())
    header = " & ".join(latex_escape(table.header[i]) for i in columns)
    return (
        "\\begin{table}\n\\centering\n"
        f"\\caption{{Subnetworks on {latex_escape(comparison.title)}: mean $\\pm$ 95 "
        "\\% interval; epochs of search, one run after the other and in parallel.}\n"
        f"\\begin{{tabular}}{{@{{}}lll{'r' * (len(columns) - 3)}@{{}}}}\n\\toprule\n"
        f"{header} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n"
    )


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "\n": " ",
}  # fmt: skip


def latex_escape(text: str) -> str:
    """Text that LaTeX prints unchanged."""
    return re.sub(r"[\\{}$&#%_^~<>\n]", lambda match: _LATEX[match[0]], text)
