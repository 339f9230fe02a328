"""`prunus reproduce`: a table or figure of the paper, done again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from prunus.cli.options import PLOTS, SweepOptions, need
from prunus.cli.report import Files, make_report
from prunus.cli.sweep import SweepFailedError, do_runs, folder_for
from prunus.errors import SettingError

if TYPE_CHECKING:
    from prunus.report.paper import Paper
    from prunus.sweeps import Experiment

SCALES = ("smoke", "cpu", "paper")
"""What every experiment of the paper has."""


def reproduce(
    name: str | None = None,
    *,
    scale: str = "cpu",
    list_: Annotated[bool, Parameter("--list", negative="")] = False,
    options: SweepOptions = SweepOptions(),  # noqa: B008 (frozen)
) -> None:
    """Do an experiment of the paper again, and see our numbers beside its own.

    Runs the experiment of that name as `prunus sweep` does, so the same command resumes after an
    interruption. Ends with the tables, `report.html`, and the comparison as CSV and JSON.

    Parameters
    ----------
    name
        An experiment, such as table1 or figure7. Without one, all are listed.
    scale
        smoke (seconds), cpu (minutes to hours on a laptop) or paper (the paper's own settings).
    list_
        List the experiments, what each shows, and what it costs.
    """
    from prunus.report.paper import paper_of
    from prunus.sweeps.experiment import named_experiment

    if name is None or list_:
        _list()
        return
    whole = named_experiment(name)
    experiment, paper = whole.at_scale(scale), paper_of(whole, scale)
    if paper is None:
        raise SettingError(f"{name} is no experiment of the paper: use prunus sweep {name}")
    out = options.out or folder_for(experiment, scale)
    if not options.dry_run:
        need("report", *PLOTS)
    failure = None
    try:
        do_runs(experiment, out, options)
    except SweepFailedError as error:
        failure = error  # raised at the end, below what the other runs found
    if not options.dry_run:
        _show(experiment, paper, whole.scales[scale].get("stand_ins", {}), scale, out)
    if failure is not None:
        raise failure


def _list() -> None:
    from prunus.sweeps.experiment import experiment_names, named_experiment
    from prunus.sweeps.plan import outline
    from prunus.tables import text_table

    rows = []
    for name in experiment_names():
        experiment = named_experiment(name)
        if experiment.paper is None:
            continue
        plans = [outline(experiment.at_scale(scale)) for scale in SCALES]
        costs = [f"{len(plan):,} / {sum(run.epochs for run in plan):,}" for plan in plans]
        rows.append([name, *costs])
        print(f"{name:<9} {experiment.description}")
    print("\nRuns / epochs of training, by scale:\n")
    print(text_table(["experiment", *SCALES], rows))
    print("\nprunus reproduce NAME --scale SCALE")


def _show(
    experiment: Experiment, paper: Paper, stand_ins: dict[str, str], scale: str, out: Path
) -> None:
    from prunus.report.model import comparisons
    from prunus.report.paper import blocks_table, figure_table, pairs, pairs_table, write_pairs
    from prunus.report.records import read_runs

    found = read_runs(out)
    print(make_report(found, out.resolve().name, out, Files(csv=out / "selections.csv", svg=True)))
    ours = comparisons(found.records)
    print(f"\nBeside the paper: {paper.where}")
    for original, stand_in in stand_ins.items():
        print(f"({stand_in} stands in for the paper's {original}.)")
    tables = [pairs_table(pairs(paper, ours)) if paper.numbers else figure_table(ours)]
    if paper.blocks is not None:
        tables.append(blocks_table(found.records, paper.blocks))
    for table in tables:
        print(f"\n{table}")
    print("\nThe paper says:", *(f"- {claim}" for claim in paper.claims), "", sep="\n")
    about = {
        "experiment": experiment.name,
        "scale": scale,
        "description": experiment.description,
        "stand_ins": stand_ins,
    }
    for path in write_pairs(out / f"{experiment.name}-{scale}", about, paper, ours):
        print(f"Comparison: {path}")
