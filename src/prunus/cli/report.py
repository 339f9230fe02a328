"""`prunus report`: tables and a page from what runs have found so far."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from prunus.cli.options import Flag
from prunus.errors import SettingError

if TYPE_CHECKING:
    from prunus.report.comparison import Comparison
    from prunus.report.runs import Found

SECONDS = 3.0
"""Between two looks at a folder that is watched, at least."""
_PAUSE = 3
"""How much longer than the work it is: the cores are for the runs."""
_WATCHED = {"sweep.json", "settings.yaml", "results.json", "metrics.jsonl"}


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
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"{folder} is a file: give the folder that has runs below it")
    out = folder if out is None else out
    if watch:
        _watch(folder, out, files)
        return
    if not folder.exists():
        raise SettingError(f"there is no folder {folder}: give one with runs below it")
    found = _read(folder)
    if not found.runs:
        raise SettingError(
            f"no runs with settings.yaml below {folder}: prunus train, search, prune, retrain and "
            "sweep make them"
        )
    print(make_report(found, folder, out, files))


def _watch(folder: Path, out: Path, files: Files) -> None:
    before: object = None
    shown = ""
    pause = SECONDS
    try:
        while True:
            now = _versions(folder)
            if now != before:
                before, began = now, time.monotonic()
                found = _read(folder)
                made = make_report(found, folder, out, files, watching=True) if found.runs else ""
                text = made or f"No runs below {folder} yet."
                if text != shown:  # curves change with every epoch, tables do not
                    print(text, flush=True)
                shown = text
                if found.over:
                    return
                pause = max(SECONDS, _PAUSE * (time.monotonic() - began))
            time.sleep(pause)
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


def _read(folder: Path) -> Found:
    from prunus.report.runs import read_runs

    return read_runs(folder)


def make_report(
    found: Found, folder: Path, out: Path, files: Files, *, watching: bool = False
) -> str:
    """Write everything; the tables, and what was written, as text."""
    from prunus.report import export
    from prunus.report.comparison import comparisons
    from prunus.report.run_page import report_page
    from prunus_runtime.atomic import write_atomically

    reports = comparisons(found.records)
    text = [*(sweep.state for sweep in found.sweeps), *_tables(reports)]
    for path, write in (
        (files.csv, export.write_csv),
        (files.parquet, export.write_parquet),
        (files.latex, export.write_latex),
    ):
        if path is not None:
            text.append(f"Table: {write(path, reports)}")
    text += [f"Plot: {path}" for path in _plots(reports, out, files)]
    live = watching and not found.over
    page = report_page(folder.resolve().name, found, reports, live=live)
    text.append(f"Page: {write_atomically(out / 'report.html', page)}")
    return "\n".join(text)


def _tables(reports: list[Comparison]) -> Iterator[str]:
    from prunus.report.tables import cost_table, selection_table
    from prunus.tables import text_table

    for report in reports:
        yield f"\n{report.title}\n"
        for table in (selection_table(report), cost_table(report)):
            if table.rows:
                yield f"{text_table(table.header, table.rows, table.left)}\n"


def _plots(reports: list[Comparison], out: Path, files: Files) -> Iterator[Path]:
    import vl_convert

    from prunus.report.run_charts import accuracy_against_density, label_order
    from prunus_runtime.atomic import write_atomically

    draw: dict[str, Callable[[Any], bytes | str]] = {
        "png": lambda chart: vl_convert.vegalite_to_png(chart, scale=2),
        "pdf": vl_convert.vegalite_to_pdf,
        "svg": vl_convert.vegalite_to_svg,
    }
    for report in reports:
        name = re.sub(r"[^\w.-]+", "-", report.title)
        for kind in draw:
            if getattr(files, kind) and report.lines:
                chart = accuracy_against_density(report, label_order(reports)).to_dict()
                yield write_atomically(out / f"accuracy-{name}.{kind}", draw[kind](chart))
