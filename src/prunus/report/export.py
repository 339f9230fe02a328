"""The selections as files that go into a paper or a notebook: CSV, Parquet and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prunus.errors import SettingError
from prunus.files import write_atomically
from prunus.report.tables import HEADER, TaskReport, round_range, selection_table


def flat(reports: Sequence[TaskReport]) -> list[dict[str, Any]]:
    """The selections as plain data, fractions of 1: one row for each rule, line and task."""
    rows: list[dict[str, Any]] = []
    for report in reports:
        for rule, line, found in report.named:
            row: dict[str, Any] = {
                "task": report.task,
                "selection": rule,
                "method": line.row,
                "measured": line.measure,
                "dense_accuracy": report.dense.mean if report.dense else None,
                "dense_deviation": report.dense.deviation if report.dense else None,
                "seeds": len(line.seeds),
                "seeds_found": len(found.picks) if found else 0,
            }
            cost = found.cost if found else None
            row |= {
                "round": round_range(found.rounds) if found else None,
                "density": found.density.mean if found else None,
                "density_deviation": found.density.deviation if found else None,
                "accuracy": found.accuracy.mean if found else None,
                "accuracy_deviation": found.accuracy.deviation if found else None,
                "search_epochs_sequential": cost.sequential if cost else None,
                "search_epochs_parallel": cost.parallel if cost else None,
            }
            rows.append(row)
    return rows


def write_csv(path: Path, reports: Sequence[TaskReport]) -> Path:
    rows = flat(reports)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_atomically(path, text.getvalue())


def write_parquet(path: Path, reports: Sequence[TaskReport]) -> Path:
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


def write_latex(path: Path, reports: Sequence[TaskReport]) -> Path:
    r"""One `table` for each task; the document needs `\usepackage{booktabs}`."""
    return write_atomically(path, "\n".join(map(_latex, reports)))


def _latex(report: TaskReport) -> str:
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
        f"\\caption{{Subnetworks on {latex_escape(report.task)}: mean $\\pm$ standard deviation "
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
