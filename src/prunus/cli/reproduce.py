"""`prunus reproduce`: a table or figure of the paper, done again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from prunus.cli.options import PLOTS, WHAT, SweepOptions, need
from prunus.cli.output import answering, next_step
from prunus.cli.report import Files, make_report
from prunus.cli.sweep import check_finished, do_runs, folder_for
from prunus.errors import SettingError
from prunus.files import read_text, resolved

if TYPE_CHECKING:
    from prunus.report.paper import Paper
    from prunus.sweeps import Experiment

SCALES = ("smoke", "short", "cpu", "paper")
"""What an experiment of the paper has; some have no `cpu`."""


def reproduce(
    name: Annotated[str | None, Parameter(group=WHAT)] = None,
    *,
    scale: Annotated[str, Parameter(group=WHAT)] = "short",
    list_: Annotated[
        bool, Parameter("--list", negative="", group=WHAT, show_default=False)
    ] = False,
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
        smoke (seconds), short (minutes to an hour on a laptop, far from converged), cpu (many
        hours, networks that have learned) or paper (the paper's own settings).
    list_
        List the experiments, what each shows, and what it costs.
    """
    from prunus.report.paper import paper_of
    from prunus.sweeps.experiment import named_experiment

    if name is None or list_:
        with answering(as_json=options.json) as answer:
            answer(_list())
        return
    whole = named_experiment(name)
    experiment, paper = whole.at_scale(scale), paper_of(whole, scale)
    if paper is None:
        raise SettingError(f"{name} is no experiment of the paper: use prunus sweep {name}")
    out = options.out or folder_for(experiment, scale)
    if not options.dry_run:
        need("report", *PLOTS)
    with answering(as_json=options.json) as answer:
        runs = do_runs(experiment, out, options)
        if options.dry_run:
            answer({"sweep": out, "runs": [run.as_data(resolved(out)) for run in runs]})
            return
        stand_ins = whole.scales[scale].get("stand_ins", {})
        file = _show(experiment, paper, stand_ins, scale, out)
        answer(json.loads(read_text(file)))
        check_finished(runs)  # below what the others found
        next_step("prunus", "runs", out)


def _list() -> dict[str, dict[str, str]]:
    """Print the experiments; each with its description, and its runs / epochs by scale."""
    from prunus.sweeps.experiment import experiment_names, named_experiment
    from prunus.sweeps.plan import outline
    from prunus.tables import text_table

    found = {}
    for name in experiment_names():
        experiment = named_experiment(name)
        if experiment.paper is None:
            continue
        found[name] = {"description": experiment.description}
        for scale in SCALES:
            if scale in experiment.scales:
                plan = outline(experiment.at_scale(scale))
                epochs = sum(run.epochs for run in plan)
                found[name][scale] = f"{len(plan):,} / {epochs:,}"
        print(f"{name:<9} {experiment.description}")
    print("\nRuns / epochs of training, by scale:\n")
    rows = [[name, *(about.get(scale, "") for scale in SCALES)] for name, about in found.items()]
    print(text_table(["experiment", *SCALES], rows))
    next_step("prunus", "reproduce", "table1", "--scale", "short", "--download")
    return found


def _show(
    experiment: Experiment, paper: Paper, stand_ins: dict[str, str], scale: str, out: Path
) -> Path:
    """Print and write everything; the file with all of it."""
    from prunus.report.model import comparisons
    from prunus.report.paper import blocks_table, figure_table, pairs, pairs_table, write_pairs
    from prunus.report.records import read_runs

    found = read_runs(out)
    print(make_report(found, resolved(out).name, out, Files(csv=out / "selections.csv", svg=True)))
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
    *_, file = written = write_pairs(out / f"{experiment.name}-{scale}", about, paper, ours)
    for path in written:
        print(f"Comparison: {path}")
    return file
