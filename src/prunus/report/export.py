"""The selections as files that go into a paper or a notebook: CSV, Parquet and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prunus.errors import SettingError
from prunus.report.comparison import Comparison
from prunus.report.parameters import as_text
from prunus.report.selection import cost_of
from prunus.report.tables import HEADER, selection_table
from prunus_runtime.atomic import write_atomically


def flat(reports: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The selections as plain data, fractions of 1: one row for each task, rule and line."""
    rows: list[dict[str, Any]] = []
    for report in reports:
        for rule, line, point in report.picks:
            cost = cost_of(point) if point else None
            rows.append(
                {
                    "task": report.title,
                    "selection": rule,
                    "method": line.row,
                    "measured": line.measure,
                    "settings": as_text(point.parameters) if point else None,
                    "round": point.round if point else None,
                    "seeds": len(point.records) if point else 0,
                    "dense_accuracy": report.dense.mean if report.dense else None,
                    "dense_deviation": report.dense.deviation if report.dense else None,
                    "density": point.density.mean if point else None,
                    "density_deviation": point.density.deviation if point else None,
                    "accuracy": point.accuracy.mean if point else None,
                    "accuracy_deviation": point.accuracy.deviation if point else None,
                    "search_epochs_sequential": cost.sequential if cost else None,
                    "search_epochs_parallel": cost.parallel if cost else None,
                }
            )
    return rows


def write_csv(path: Path, reports: Sequence[Comparison]) -> Path:
    rows = flat(reports)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_atomically(path, text.getvalue())


def write_parquet(path: Path, reports: Sequence[Comparison]) -> Path:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise SettingError(
            "Parquet files need pyarrow: pip install 'prunus[parquet]', or use --csv"
        ) from error
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(flat(reports)), buffer)
    return write_atomically(path, buffer.getvalue())


def write_latex(path: Path, reports: Sequence[Comparison]) -> Path:
    r"""One `table` for each task; the document needs `\usepackage{booktabs}`."""
    return write_atomically(path, "\n".join(map(_latex, reports)))


def _latex(report: Comparison) -> str:
    table = selection_table(report)
    columns = [i for i, name in enumerate(HEADER) if name not in ("seeds", "settings")]
    groups: dict[str, list[str]] = {}
    for row in table.rows:
        cells = [latex_escape(row[i]).replace("±", r"$\pm$") for i in columns]
        groups.setdefault(row[0], []).append(" & ".join(cells) + r" \\")
    body = "\n\\midrule\n".join("\n".join(lines) for lines in groups.values())
    header = " & ".join(latex_escape(HEADER[i]) for i in columns)
    return (
        "\\begin{table}\n\\centering\n"
        f"\\caption{{Subnetworks on {latex_escape(report.title)}: mean $\\pm$ standard deviation "
        "over seeds; epochs of search, one run after the other and in parallel.}\n"
        f"\\begin{{tabular}}{{@{{}}lll{'r' * (len(columns) - 3)}@{{}}}}\n\\toprule\n"
        f"{header} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n"
    )


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "\n": " ",
}  # fmt: skip


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return re.sub(r"[\\{}$&#%_^~<>\n]", lambda match: _LATEX[match[0]], text)
