"""The page of `prunus report`: plots, tables, and a panel for each ticket, in one file."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from prunus.report.comparison import Comparison
from prunus.report.curves import Point
from prunus.report.details import curves, describe, picture_urls
from prunus.report.page import STYLE, Html, Table, table_html, vega_library
from prunus.report.parameters import as_text
from prunus.report.run_charts import (
    accuracy_against_density,
    curve_chart,
    density_chart,
    label_order,
    task_points,
)
from prunus.report.runs import Found, Record
from prunus.report.tables import cost_table, selection_table, spread
from prunus.version import __version__

# The page asks nobody for anything, even if something in it wanted to. Vega makes functions.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)


def report_page(
    name: str, found: Found, reports: Sequence[Comparison], *, live: bool = False
) -> str:
    """The whole page. `live`: it is being watched, so it loads itself again now and then.

    Everything that comes from files is escaped.
    """
    web = files("prunus.report") / "web"
    content = json.dumps(page_data(reports), separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(content.encode(), mtime=0)).decode()
    sections = "\n".join(_section(i, report) for i, report in enumerate(reports))
    reload = (
        '<p><label><input type="checkbox" id="live"> Load this page again every 5 seconds while '
        "nothing is open</label></p>"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(name)}: Prunus report</title>
<style>{STYLE}{(web / "page.css").read_text()}</style>
</head>
<body>
<header><h1>{html.escape(name)}</h1>
{_introduction(found)}{reload if live else ""}</header>
<main>
{sections}
</main>
<footer>Made by prunus {html.escape(__version__)} report.</footer>
{(web / "panel.html").read_text()}
<script type="text/plain" id="data">{packed}</script>
<script type="module">
{vega_library()}
{(web / "page.js").read_text()}
</script>
</body>
</html>
"""


def page_data(reports: Sequence[Comparison]) -> dict[str, Any]:
    """What the page's script reads: charts, points of each, tickets, and what these share."""
    order = label_order(reports)
    tickets: list[dict[str, Any]] = []
    records: list[Record] = []
    all_points = []
    for report in reports:
        own = []
        for point in task_points(report):
            numbers = range(len(tickets), len(tickets) + len(point.records))
            own.append({"title": _title(point), "tickets": list(numbers)})
            tickets += map(describe, point.records)
            records += point.records
        all_points.append(own)
    # The first seeds first: if there is no room for all pictures, each point has one.
    by_seed = sorted(records, key=lambda record: record.seed)
    urls = picture_urls(list(dict.fromkeys(r.ticket for r in by_seed if r.ticket is not None)))
    for ticket, record in zip(tickets, records, strict=True):
        ticket["pictures"] = urls.get(record.ticket, {}) if record.ticket else {}
    folders = {f for r in records for f in (r.folder, r.retraining) if f is not None}
    return {
        "charts": [accuracy_against_density(r, order, "container").to_dict() for r in reports],
        "points": all_points,
        "tickets": tickets,
        "curves": {str(folder): curves(folder) for folder in sorted(folders)},
        "panel": {
            "layers": density_chart("weights kept (%)"),
            "blocks": density_chart("weights kept (%)"),
            "accuracy": curve_chart("accuracy", "validation accuracy (%)"),
            "kept": curve_chart("kept", "weights kept (%)"),
            "loss": curve_chart("loss", "loss"),
        },
    }


def _introduction(found: Found) -> str:
    states = "".join(f"<p>{html.escape(sweep.state)}</p>\n" for sweep in found.sweeps)
    failed = "".join(
        f'<p class="problem"><strong>{html.escape(run.id)}</strong> failed: '
        f"{html.escape(run.error or 'no reason given')}</p>\n"
        for sweep in found.sweeps
        for run in sweep.runs
        if run.status == "failed"
    )
    return (
        f"<p>{found.runs} runs, {len(found.records)} networks. Accuracies are on test images, with "
        "the binary mask; ± is the standard deviation over seeds. Choose a point, with the pointer "
        "or with Tab, arrows and Enter, to look into its ticket.</p>\n" + states + failed
    )


def _section(number: int, report: Comparison) -> str:
    title = html.escape(report.title)
    caption = (
        "Up is better, left is smaller. Above the dashed line, the small network inside is at "
        "least as good as the whole. Thin lines are single runs from round to round, and the thick "
        "curve connects their last rounds."
    )
    if not report.lines:
        return f"<section><h2>{title}</h2>\n{table_html(selection_table(report))}</section>"
    return f"""<section aria-labelledby="task-{number}">
<h2 id="task-{number}">{title}</h2>
<figure><div class="chart" id="chart-{number}" role="group"
aria-label="Accuracy against density on {title}"></div>
<figcaption>{caption}</figcaption></figure>
{table_html(selection_table(report))}
<p>Each rule picks one point of the plot, by its mean accuracy. Epochs are those of the search until
then: of all runs one after the other, and with enough parallel workers. All subnetworks
together:</p>
{table_html(cost_table(report))}
<details><summary>All points as a table</summary>
{_points_table(number, report)}</details>
</section>"""


def _points_table(number: int, report: Comparison) -> str:
    """The plot for those who do not see it; its buttons open the same panels."""
    header = ["method", "settings", "stage", "kept %", "accuracy %", "seeds", "ticket"]
    rows = [
        [
            point.line.label,
            as_text(point.parameters),
            point.stage,
            spread(point.density, len(point.records)),
            spread(point.accuracy, len(point.records)),
            str(len(point.records)),
            Html(
                f'<button type="button" data-task="{number}" data-point="{i}" '
                f'aria-label="Open {html.escape(_title(point))}">open</button>'
            ),
        ]
        for i, point in enumerate(task_points(report))
    ]
    return table_html(Table(header, rows, left=frozenset({0, 1, 2})))


def _title(point: Point) -> str:
    return ", ".join(filter(None, [point.line.label, as_text(point.parameters), point.stage]))
