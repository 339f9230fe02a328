"""The page of `prunus report`: plots, tables, and a panel for each ticket, in one file."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from prunus.report.charts import axis_title, series_order
from prunus.report.findings import details, finding
from prunus.report.model import Comparison, Point
from prunus.report.panel import curves, describe, picture_urls
from prunus.report.panel_charts import curve_chart, density_chart
from prunus.report.parameters import as_text
from prunus.report.pictures import Picture, pictures
from prunus.report.records import Record, ReportData
from prunus.report.tables import (
    Strong,
    Table,
    checklist,
    cost_table,
    density_table,
    ordered_points,
    points_table,
    raw_table,
    selection_table,
)
from prunus.version import __version__

# The page loads nothing, even if something in it tried to. Vega needs to make functions.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)


class Html(str):
    """Text that is HTML already, and so is not escaped."""


def report_page(
    name: str, data: ReportData, comparisons: Sequence[Comparison], *, live: bool = False
) -> str:
    """The whole page: opens from a file, needs no network.

    `live`: the report is being watched, so the page reloads itself now and then.

    Everything that comes from files is escaped.
    """
    web = files("prunus.report") / "web"
    content = json.dumps(page_data(comparisons), separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(content.encode(), mtime=0)).decode()
    sections = "\n".join(_section(i, comparison) for i, comparison in enumerate(comparisons))
    reload = (
        '<p><label><input type="checkbox" id="live"> Reload this page every 5 seconds while '
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
<style>{(web / "page.css").read_text()}</style>
</head>
<body>
<header><h1>{html.escape(name)}</h1>
{_findings(comparisons)}{_introduction(data)}{reload if live else ""}</header>
<main>
{sections}
<section><h2>How it was measured</h2>
{_checklist(data, comparisons)}
<details><summary>Raw values of every run</summary>
{table_html(raw_table(comparisons))}</details></section>
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


@lru_cache  # a watched page is made again and again
def vega_library() -> str:
    """JavaScript that defines `vegaEmbed`, to stand inside a script element."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def page_data(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """What the page's script reads: charts, points of each, tickets, and what these share."""
    order = series_order(comparisons)
    tickets: list[dict[str, Any]] = []
    records: list[Record] = []
    all_points = []
    for comparison in comparisons:
        own = []
        for point in comparison.points:
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
    folders = {f: r.metric for r in records for f in (r.folder, r.retraining) if f is not None}
    return {
        "charts": [
            [
                {
                    "chart": picture.chart(order, "container").to_dict(),
                    "caption": picture.caption,
                }
                for picture in pictures(c)
            ]
            for c in comparisons
        ],
        "metrics": [
            {
                "name": c.metric.name,
                "chart": curve_chart("value", axis_title(c.metric, f"validation {c.metric.name}")),
            }
            for c in comparisons
        ],
        "points": all_points,
        "tickets": tickets,
        "curves": {str(folder): curves(folder, metric) for folder, metric in folders.items()},
        "panel": {
            "layers": density_chart("weights kept (%)"),
            "blocks": density_chart("weights kept (%)"),
            "kept": curve_chart("kept", "weights kept (%)"),
            "loss": curve_chart("loss", "loss"),
        },
    }


def _findings(comparisons: Sequence[Comparison]) -> str:
    """What was found, before anything else: a sentence for each task."""
    several = len(comparisons) > 1
    return "".join(
        f'<p class="finding">{html.escape(f"{c.title}: " if several else "")}'
        f"{html.escape(finding(c))}</p>\n"
        for c in comparisons
        if c.series
    )


def _checklist(data: ReportData, comparisons: Sequence[Comparison]) -> str:
    facts = checklist(data, comparisons)
    lines = (f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in facts)
    return f"<dl>{''.join(lines)}</dl>"


def _introduction(data: ReportData) -> str:
    states = "".join(f"<p>{html.escape(sweep.state)}</p>\n" for sweep in data.sweeps)
    failed = "".join(
        f'<p class="problem"><strong>{html.escape(run.id)}</strong> failed: '
        f"{html.escape(run.error or 'no reason given')}</p>\n"
        for sweep in data.sweeps
        for run in sweep.runs
        if run.status == "failed"
    )
    return (
        f"<p>{data.runs} runs, {len(data.records)} networks. Values are on test data, with "
        "the binary mask; ± is the 95 % interval. Choose a point, with the pointer or with Tab, "
        "arrows and Enter, to look into its ticket; a name above the plot, to hide its curve; the "
        "head of a column, to sort by it.</p>\n" + states + failed
    )


def _section(number: int, comparison: Comparison) -> str:
    title, name = html.escape(comparison.title), html.escape(comparison.metric.name)
    if not comparison.series:
        return f"<section><h2>{title}</h2>\n{table_html(selection_table(comparison))}</section>"
    says = "".join(f"<p>{html.escape(text)}</p>\n" for text in details(comparison))
    equal, seen = density_table(comparison), pictures(comparison)
    beside = f"<h3>With equally many weights</h3>\n{table_html(equal)}" if equal.rows else ""
    return f"""<section aria-labelledby="task-{number}">
<h2 id="task-{number}">{title}</h2>
<figure>{_switch(number, seen)}<div class="chart" id="chart-{number}" role="group"
aria-label="{name.capitalize()} on {title}"></div>
<figcaption id="caption-{number}">{html.escape(seen[0].caption)}</figcaption></figure>
{says}{beside}
<h3>Picks</h3>
{table_html(selection_table(comparison))}
<p>Each rule picks one point of the plot, by its {name} on validation data. Epochs
are those of the search until then: of all runs one after the other, and with enough parallel
workers. All subnetworks together:</p>
{table_html(cost_table(comparison))}
<details><summary>All points as a table</summary>
{_points_table(number, comparison)}</details>
</section>"""


def _switch(number: int, seen: Sequence[Picture]) -> str:
    """Buttons to choose one of the plots, if there is a choice."""
    if len(seen) < 2:
        return ""
    buttons = "".join(
        f'<button type="button" data-chart="{number}" data-view="{i}" '
        f'aria-pressed="{"false" if i else "true"}">{html.escape(picture.name)}</button>\n'
        for i, picture in enumerate(seen)
    )
    return f'<div class="views" role="group" aria-label="Shown against">\n{buttons}</div>\n'


def _points_table(number: int, comparison: Comparison) -> str:
    """The plot as a table; its buttons open the same panels."""
    table = points_table(comparison, sizes=True)
    place = {id(point): i for i, point in enumerate(comparison.points)}
    buttons: list[str] = [
        Html(
            f'<button type="button" data-task="{number}" data-point="{place[id(point)]}" '
            f'aria-label="Open {html.escape(_title(point))}">open</button>'
        )
        for point in ordered_points(comparison)
    ]
    if comparison.dense is not None:
        buttons = ["", *buttons]
    rows = [[*row, button] for row, button in zip(table.rows, buttons, strict=True)]
    return table_html(Table([*table.header, "ticket"], rows, table.left))


def _title(point: Point) -> str:
    return ", ".join(filter(None, [point.series.name, as_text(point.parameters), point.stage]))


def table_html(table: Table) -> str:
    """A table that scrolls sideways where it is too wide; cells are escaped, but for `Html`."""
    kinds = [" class=left" if i in table.left else "" for i in range(len(table.header))]
    head = "".join(
        f'<th scope="col"{kind}>{html.escape(cell)}</th>'
        for kind, cell in zip(kinds, table.header, strict=True)
    )
    rows = "\n".join(
        "<tr>"
        + "".join(f"<td{kind}>{_cell(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in table.rows
    )
    return (
        f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n'
        "</tbody></table></div>"
    )


def _cell(text: str) -> str:
    if isinstance(text, Html):
        return text
    plain = html.escape(text)
    return f"<strong>{plain}</strong>" if isinstance(text, Strong) else plain
