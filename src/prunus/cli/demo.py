"""`prunus demo`: the experiment `demo`, its table, and what it says."""

from __future__ import annotations

from pathlib import Path

from prunus.cli.options import PLOTS, SweepOptions, need
from prunus.cli.report import Files, make_report
from prunus.cli.sweep import do_runs


def demo(*, out: Path = Path("demo"), scale: str | None = None, workers: int | None = None) -> None:
    """See the lottery ticket hypothesis happen on embedded data, in about two minutes.

    Trains a small ConvNet on scikit-learn's digits; searches tickets with CS and IMP; re-trains
    them beside random masks; prints a table and writes tickets, results and an HTML page. The same
    command resumes after an interruption.

    Parameters
    ----------
    out
        Folder for the runs with their tickets, the results and the page.
    scale
        smoke: a few seconds, to see that it works; the numbers mean nothing.
    workers
        Processes (default: one for each core).
    """
    from prunus.report.findings import details, finding
    from prunus.report.model import comparisons
    from prunus.report.records import read_runs
    from prunus.report.tables import points_table
    from prunus.sweeps.experiment import named_experiment

    need("demo", "sklearn", *PLOTS)
    do_runs(named_experiment("demo").at_scale(scale), out, SweepOptions(workers=workers))
    found = read_runs(out)
    make_report(found, "The small network inside the big one", out, Files(json=out / "demo.json"))
    [comparison] = comparisons(found.records)
    print("\nSubnetworks of a ConvNet on digits, mean and 95 % interval over seeds:\n")
    print(points_table(comparison), finding(comparison), *details(comparison), sep="\n\n")
    print(f"\nPage: {out / 'report.html'}\nTickets: {out}/*/tickets\nResults: {out / 'demo.json'}")
