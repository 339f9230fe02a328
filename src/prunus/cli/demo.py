"""`prunus demo`."""

from __future__ import annotations

from pathlib import Path


def demo(out: Path = Path("demo")) -> None:
    """See the lottery ticket hypothesis happen on embedded data, in about two minutes.

    Trains a small ConvNet on scikit-learn's digits; searches tickets with CS and IMP; re-trains
    them beside random masks; prints a table and writes tickets and an HTML page. Run it again
    after an interruption and it goes on where it was.

    Parameters
    ----------
    out
        Folder for the results, the tickets and the page.
    """
    from rich.console import Console
    from rich.table import Table

    from prunus.demo import Experiment, Settings, demo_page, demo_table, verdict
    from prunus.files import write_atomically
    from prunus.report.summary import summarise
    from prunus.training.progress import progress_bar

    console = Console()
    settings = Settings()
    with progress_bar(console) as progress:
        bar = progress.add_task("starting", total=settings.total_epochs)

        def advance(doing: str, epochs: int) -> None:
            progress.update(bar, description=doing, advance=epochs)

        results = Experiment(out, settings, advance).run()
        progress.update(bar, description="done")
    groups = summarise(results)
    content = demo_table(groups)
    table = Table(title="Subnetworks of a ConvNet on digits, mean ± deviation over seeds")
    for i, name in enumerate(content.header):
        table.add_column(name, justify="right" if i else "left")
    for i, row in enumerate(content.rows):
        table.add_row(*row, style="bold" if i in content.marked else None)
    console.print(table)
    console.print(verdict(groups))
    page = write_atomically(out / "report.html", demo_page(results, settings))
    console.print(f"Page: {page}\nTickets: {out / 'tickets'}")
