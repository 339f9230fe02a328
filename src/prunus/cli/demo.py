"""`prunus demo`: the experiment `demo`, its table, and what it says."""

from __future__ import annotations

from json import loads
from pathlib import Path

from prunus.cli.options import PLOTS, SweepOptions, need
from prunus.cli.output import AsJson, answering, next_step
from prunus.cli.report import Files, make_report
from prunus.cli.sweep import check_finished, do_runs
from prunus.files import read_text


def demo(
    *,
    out: Path = Path("demo"),
    scale: str | None = None,
    workers: int | None = None,
    json: AsJson = False,
) -> None:
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
    json
        Print the results as one JSON document, as prunus report --json writes it.
    """
    from prunus.report.findings import details, finding
    from prunus.report.model import comparisons
    from prunus.report.records import read_runs
    from prunus.report.tables import points_table
    from prunus.sweeps.experiment import named_experiment

    need("demo", "sklearn", *PLOTS)
    with answering(as_json=json) as answer:
        options = SweepOptions(workers=workers)
        check_finished(do_runs(named_experiment("demo").at_scale(scale), out, options))
        found, file = read_runs(out), out / "demo.json"
        make_report(found, "The small network inside the big one", out, Files(json=(file,)))
        [comparison] = comparisons(found.records)
        print("\nSubnetworks of a ConvNet on digits, mean and 95 % interval over seeds:\n")
        print(points_table(comparison), finding(comparison), *details(comparison), sep="\n\n")
        print(f"\nPage: {out / 'report.html'}\nTickets: {out}/*/tickets\nResults: {file}")
        task = "digits/digits_convnet"
        next_step("prunus", "search", "--task", task, "--target-density", "10%")
        answer(loads(read_text(file)))
