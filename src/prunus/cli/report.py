"""`prunus report`: tables and a page from what runs have found so far."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from json import loads
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from prunus.cli.options import FILES, PLOTS, WHAT, Flag, need
from prunus.cli.output import answering, next_step
from prunus.errors import SettingError
from prunus.files import resolved
from prunus.tables import printable

if TYPE_CHECKING:
    from prunus.report.model import Comparison
    from prunus.report.records import ReportData

SECONDS = 3.0
"""Between two looks at a folder that is watched, at least."""
_PAUSE = 3
"""How many times longer than the work it is: the cores are for the runs."""
_WATCHED = {"sweep.json", "settings.yaml", "results.json", "metrics.jsonl", "speed.json"}


@Parameter(name="*", group=FILES)
@dataclass(frozen=True)
class Files:
    """Files to write beside the page."""

    json: Annotated[
        tuple[Path, ...] | None, Parameter(consume_multiple=True, negative="", metavar="[FILE]")
    ] = None
    "Print every subnetwork, with its raw values, as one JSON document; messages go to stderr. \
With the name of a file, write it there instead, to commit or show again."
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
    *runs: Annotated[Path, Parameter(group=WHAT)],
    margin: Annotated[float, Parameter(group=WHAT)] = 0.5,
    speed: Annotated[Flag, Parameter(group=WHAT)] = False,
    watch: Annotated[Flag, Parameter(group=WHAT)] = False,
    out: Annotated[Path | None, Parameter(group=FILES)] = None,
    data: Annotated[Path | None, Parameter(group=FILES)] = None,
    files: Files = Files(),  # noqa: B008 (frozen)
) -> None:
    """Show what runs have found: the finding, the paper's selections, and a page of plots.

    Works at any time, on a sweep or on any folder of runs, finished or not; and on files that
    --json wrote.

    Parameters
    ----------
    runs
        Required: a sweep's folder, any folder with runs below it, or a file of --json; several are
        merged.
    out
        Folder for report.html and the plots (default: the first folder, or that of the file).
    margin
        By how many points a subnetwork that matches may be worse than the dense network; for a
        metric that is no percentage, by how many per cent.
    speed
        First deploy every network whose speed is not known yet, and measure it, in batches of 1 and
        128, in turns with the dense network. It is kept as speed.json in the folder of the run, and
        the page then has the metric against speed too.
    data
        With --speed: folder with the data sets (default: that of the runs).
    watch
        Make it again whenever something changes, until the sweep is over or you press Ctrl-C.
    """
    to_stdout = files.json == ()
    if files.json:  # what follows the file are runs
        runs, files = (*runs, *files.json[1:]), replace(files, json=files.json[:1])
    if not runs:
        raise SettingError("name a folder with runs below it, or a file of --json")
    if margin < 0:
        raise SettingError(f"margin={margin:g} is negative: it says how much worse a match may be")
    if not isfinite(margin):
        raise SettingError(f"margin={margin:g} is not a number of points, such as 0.5")
    need("report", *PLOTS)
    first = runs[0]
    place = out or (first.parent if first.is_file() else first)
    if watch:
        if to_stdout:
            raise SettingError("--json prints one document: leave out --watch, or name a file")
        if speed:
            raise SettingError("--speed would disturb what is watched: leave one of them out")
        if len(runs) > 1 or first.is_file():
            raise SettingError(f"--watch is for one folder, not for {' '.join(map(str, runs))}")
        _watch(first, place, files, margin)
        return
    from prunus.report.file import report_text
    from prunus.report.records import merged

    with answering(as_json=to_stdout) as answer:
        found = [_found(path) for path in runs]
        if speed:
            from prunus.cli.speed import measure_records

            known = [record for _, content in found for record in content.records]
            measure_records(known, data, lambda text: print(printable(text)))
            found = [_found(path) for path in runs]
        content = found[0][1] if len(found) == 1 else merged([each for _, each in found])
        if not content.runs:
            raise SettingError(
                f"no runs with settings.yaml below {first}: prunus train, search, prune, retrain "
                "and sweep make them"
            )
        print(make_report(content, found[0][0], place, files, margin))
        if first.is_dir():
            next_step("prunus", "runs", first)
        if to_stdout:
            answer(loads(report_text(found[0][0], content)))


def _found(path: Path) -> tuple[str, ReportData]:
    """Name and content of a folder of runs, or of a file of --json."""
    if path.is_file():
        from prunus.report.file import read_report

        content = read_report(path)
        return content.name, content.data
    if not path.exists():
        raise SettingError(f"there is no folder {path}: give one with runs below it")
    return resolved(path).name, _read(path)


def _watch(folder: Path, out: Path, files: Files, margin: float) -> None:
    before: object = None
    shown, name = "", resolved(folder).name
    pause = SECONDS
    try:
        while True:
            now = _versions(folder)
            if now != before:
                before, began = now, time.monotonic()
                found = _read(folder)
                text = f"No runs below {folder} yet."
                if found.runs:
                    text = make_report(found, name, out, files, margin, watching=True)
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


def _read(folder: Path) -> ReportData:
    from prunus.report.records import read_runs

    return read_runs(folder)


def make_report(
    found: ReportData,
    name: str,
    out: Path,
    files: Files,
    margin: float = 0.5,
    *,
    watching: bool = False,
) -> str:
    """Write everything; the tables, and what was written, as text. `margin` is in points."""
    from prunus.files import write_atomically
    from prunus.report import export
    from prunus.report.file import write_report
    from prunus.report.model import comparisons
    from prunus.report.page import report_page

    made = comparisons(found.records, margin / 100)
    text = [*(printable(sweep.state) for sweep in found.sweeps), *_tables(made)]
    for path, write in (
        (files.csv, export.write_csv),
        (files.parquet, export.write_parquet),
        (files.latex, export.write_latex),
    ):
        if path is not None:
            text.append(f"Table: {write(path, made)}")
    text += [f"Results: {write_report(path, name, found)}" for path in files.json or ()]
    text += [f"Plot: {path}" for path in _plots(made, out, files)]
    live = watching and not found.over
    page = report_page(name, found, made, live=live)
    text.append(f"Page: {write_atomically(out / 'report.html', page)}")
    return "\n".join(text)


def _tables(made: list[Comparison]) -> Iterator[str]:
    from prunus.report.findings import details, finding
    from prunus.report.tables import cost_table, density_table, selection_table

    for comparison in made:
        yield f"\n{printable(comparison.title)}\n"
        yield "\n".join([*map(printable, [finding(comparison), *details(comparison)]), ""])
        for table in (selection_table, density_table, cost_table):
            if (shown := table(comparison)).rows:
                yield f"{shown}\n"


def _plots(made: list[Comparison], out: Path, files: Files) -> Iterator[Path]:
    import vl_convert

    from prunus.files import write_atomically
    from prunus.report.charts import WIDTH, series_order
    from prunus.report.pictures import pictures

    draw: dict[str, Callable[[Any], bytes | str]] = {
        "png": lambda chart: vl_convert.vegalite_to_png(chart, scale=2),
        "pdf": vl_convert.vegalite_to_pdf,
        "svg": vl_convert.vegalite_to_svg,
    }
    for comparison in made:
        if not comparison.series:
            continue
        kinds = [kind for kind in draw if getattr(files, kind)]
        for i, picture in enumerate(pictures(comparison)):
            against = f"-{picture.name}" if i else ""
            title = f"{comparison.metric.name}-{comparison.title}{against}"
            name = re.sub(r"[^\w.-]+", "-", title)
            for kind in kinds:
                chart = picture.chart(series_order(made), WIDTH).to_dict()
                yield write_atomically(out / f"{name}.{kind}", draw[kind](chart))
