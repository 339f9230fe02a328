"""One self-contained HTML page: opens from a file, asks the network for nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

STYLE = """
:root { --ink: #1f2430; --paper: #ffffff; --soft: #5b6270; --line: #d9dde5; --mark: #f3ecf8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ee; --paper: #14161b; --soft: #a4abba; --line: #343945; --mark: #2c2138; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p, figcaption { max-width: 44rem; } figcaption { color: var(--soft); }
figure { margin: 1rem 0; } figure, .table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: .3rem .7rem; border-bottom: 1px solid var(--line); }
th.left, td.left { text-align: left; } tr.marked td { background: var(--mark); }
footer { color: var(--soft); margin: 3rem 0 1rem; font-size: .9rem; }
"""

SCRIPT = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const draw = () => specifications.forEach((spec, i) => {
  const theme = dark.matches ? {theme: "dark", config: {background: "transparent"}} : {};
  vegaEmbed("#chart-" + i, spec, {actions: {export: true, source: false, editor: false},
                                  renderer: "svg", ...theme});
});
draw(); dark.addEventListener("change", draw);
"""


class Html(str):
    """Text that is HTML already, and so is not escaped."""


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; `marked` rows stand out, `left` columns hold words."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: frozenset[int] = frozenset()
    left: frozenset[int] = frozenset({0})


@dataclass(frozen=True)
class Figure:
    """An Altair chart with a title and a caption."""

    title: str
    caption: str
    chart: Any


def render(
    title: str, introduction: str, table: Table, figures: Sequence[Figure], foot: str
) -> str:
    """The page. All texts are plain text and are escaped."""
    specifications = json.dumps([f.chart.to_dict() for f in figures]).replace("</", "<\\/")
    sections = "\n".join(_figure(i, figure) for i, figure in enumerate(figures))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
<p>{html.escape(introduction)}</p>
{table_html(table)}
{sections}
<footer>{html.escape(foot)}</footer>
<script type="module">
{vega_library()}
const specifications = {specifications};
{SCRIPT}
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


def _figure(number: int, figure: Figure) -> str:
    title, caption = html.escape(figure.title), html.escape(figure.caption)
    return (
        f'<h2>{title}</h2>\n<figure><div class="chart" id="chart-{number}" role="img" '
        f'aria-label="{title}"></div>\n<figcaption>{caption}</figcaption></figure>'
    )


def table_html(table: Table) -> str:
    """A table that scrolls sideways where it is too wide; cells are escaped, but for `Html`."""
    kinds = [" class=left" if i in table.left else "" for i in range(len(table.header))]
    head = "".join(
        f'<th scope="col"{kind}>{html.escape(cell)}</th>'
        for kind, cell in zip(kinds, table.header, strict=True)
    )
    rows = "\n".join(
        f"<tr{' class=marked' if i in table.marked else ''}>"
        + "".join(
            f"<td{kind}>{cell if isinstance(cell, Html) else html.escape(cell)}</td>"
            for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for i, row in enumerate(table.rows)
    )
    return (
        f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n'
        "</tbody></table></div>"
    )
