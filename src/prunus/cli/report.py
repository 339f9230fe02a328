"""`prunus report`: tables and a page from what runs have found so far."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from prunus.errors import SettingError

if TYPE_CHECKING:
    from prunus.report.runs import Found
    from prunus.report.tables import TaskReport

SECONDS = 3.0
"""Between two looks at a folder that is watched."""
_WATCHED = {"sweep.json", "settings.yaml", "results.json", "metrics.jsonl"}

Flag = Annotated[bool, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True)
class Files:
    """Files to write beside the page."""

    csv: Path | None = None
    "Also write the table of selections as CSV."
    parquet: Path | None = None
    "Also write it as Parquet (needs pyarrow)."
    latex: Path | None = None
    "Also write it as LaTeX, for a document with \\usepackage{booktabs}."
    png: Flag = False
    "Also write each plot as PNG, beside the page."
    pdf: Flag = False
    "Also write each plot as PDF."
    svg: Flag = False
    "Also write each plot as SVG."


def report(
    folder: Path,
    *,
    out: Path | None = None,
    files: Files = Files(),  # noqa: B008 (frozen)
    watch: Flag = False,
) -> None:
    """Show what the runs below a folder have found: the paper's selections, and a page of plots.

    Works at any time, on a sweep or on any folder of runs, finished or not.

    Parameters
    ----------
    folder
        A sweep's folder, or any folder with runs below it.
    out
        Folder for report.html and the plots (default: the same folder).
    watch
        Make it again whenever something changes, until the sweep is over or you press Ctrl-C.
    """
    if not folder.is_dir():
        raise SettingError(f"{folder} is not a folder: give one with runs below it")
    out = folder if out is None else out
    if watch:
        _watch(folder, out, files)
    elif not make_report(folder, out, files):
        raise SettingError(
            f"no runs with settings.yaml below {folder}: prunus train, search, prune, retrain and "
            "sweep make them"
        )


def _watch(folder: Path, out: Path, files: Files) -> None:
    before: object = None
    over = False
    try:
        while not over:
            now = _versions(folder)
            if now == before:
                time.sleep(SECONDS)
                continue
            before = now
            found = make_report(folder, out, files, watching=True)
            over = found is not None and found.over
            if found is None:
                print(f"No runs below {folder} yet.")
    except KeyboardInterrupt:
        print("No longer watching. The page stays as it is.")


def _versions(folder: Path) -> dict[Path, int]:
    found = (path for path in folder.rglob("*") if path.name in _WATCHED)
    versions = {}
    for path in found:
        try:
            versions[path] = path.stat().st_mtime_ns
        except FileNotFoundError:  # just replaced
            versions[path] = 0
    return versions


def make_report(folder: Path, out: Path, files: Files, *, watching: bool = False) -> Found | None:
    """Print and write everything; None if there is nothing yet."""
    from prunus.files import write_atomically
    from prunus.report import export
    from prunus.report.run_page import report_page
    from prunus.report.runs import read_runs
    from prunus.report.tables import task_reports

    found = read_runs(folder)
    if not found.runs:
        return None
    reports = task_reports(found.records)
    for sweep in found.sweeps:
        print(sweep.state)
    _print(reports)
    for path, write in (
        (files.csv, export.write_csv),
        (files.parquet, export.write_parquet),
        (files.latex, export.write_latex),
    ):
        if path is not None:
            print(f"Table: {write(path, reports)}")
    for path in _plots(reports, out, files):
        print(f"Plot: {path}")
    live = watching and not found.over
    page = report_page(folder.resolve().name, found, reports, live=live)
    print(f"Page: {write_atomically(out / 'report.html', page)}")
    return found


def _print(reports: list[TaskReport]) -> None:
    from prunus.report.tables import cost_table, selection_table
    from prunus.tables import text_table

    for report in reports:
        print(f"\n{report.task}\n")
        for table in (selection_table(report), cost_table(report)):
            print(f"{text_table(table.header, table.rows)}\n")


def _plots(reports: list[TaskReport], out: Path, files: Files) -> Iterator[Path]:
    import vl_convert

    from prunus.files import write_atomically
    from prunus.report.run_charts import accuracy_against_density, label_order

    draw: dict[str, Callable[[Any], bytes | str]] = {
        "png": lambda chart: vl_convert.vegalite_to_png(chart, scale=2),
        "pdf": vl_convert.vegalite_to_pdf,
        "svg": vl_convert.vegalite_to_svg,
    }
    for report in reports:
        name = re.sub(r"[^\w.-]+", "-", report.task)
        for kind in draw:
            if getattr(files, kind) and report.lines:
                chart = accuracy_against_density(report, label_order(reports)).to_dict()
                yield write_atomically(out / f"accuracy-{name}.{kind}", draw[kind](chart))
