"""Running the demo on a terminal: progress, table, verdict, and the files it leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from prunus.demo.experiment import Result
from prunus.demo.output import demo_page, demo_table, verdict
from prunus.demo.settings import Settings
from prunus.demo.workers import run_seeds
from prunus.report import charts
from prunus.report.summary import Group, summarise
from prunus.training.progress import progress_bar
from prunus_runtime.atomic import write_atomically


def show(folder: Path, settings: Settings) -> None:
    """Run the experiment in `folder`, print what came out and write the page."""
    console = Console()
    results = _run(folder, settings, console)
    groups = summarise(results)
    console.print(_table(groups))
    console.print(verdict(groups))
    content = {"settings": asdict(settings), "results": [asdict(result) for result in results]}
    write_atomically(folder / "results.json", json.dumps(content, indent=1) + "\n")
    page = write_atomically(folder / "report.html", demo_page(results, settings))
    charts.accuracy_against_density(groups).save(str(folder / "accuracy.svg"))
    console.print(f"Page: {page}\nTickets: {folder / 'tickets'}")


def _run(folder: Path, settings: Settings, console: Console) -> list[Result]:
    with progress_bar(console) as progress:
        bar = progress.add_task("starting", total=settings.total_epochs)

        def advance(doing: str, epochs: int) -> None:
            progress.update(bar, description=doing, advance=epochs)

        results = run_seeds(folder, settings, advance)
        progress.update(bar, description="done")
    return results


def _table(groups: Sequence[Group]) -> Table:
    content = demo_table(groups)
    title = "Subnetworks of a ConvNet on digits, mean ± deviation over seeds"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for i, name in enumerate(content.header):
        table.add_column(name, justify="right" if i else "left")
    for i, row in enumerate(content.rows):
        table.add_row(*row, style="bold" if i in content.marked else None)
    return table
