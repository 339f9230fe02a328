"""`prunus reproduce`: a table or figure of the paper, done again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from prunus.cli.options import Doing
from prunus.cli.report import Files, make_report
from prunus.cli.sweep import SweepFailedError, do_runs, folder_for

if TYPE_CHECKING:
    from prunus.search.sweep import SweepRecipe

SCALES = ("smoke", "cpu", "paper")
"""What every recipe of the paper has."""


def reproduce(
    name: str | None = None,
    *,
    scale: str = "cpu",
    data: Path | None = None,
    list_: Annotated[bool, Parameter("--list", negative="")] = False,
    doing: Doing = Doing(),  # noqa: B008 (frozen)
) -> None:
    """Do an experiment of the paper again, and see our numbers beside its own.

    Runs the recipe of that name as `prunus sweep` does, so the same command goes on after an
    interruption. Ends with the tables, `report.html`, and the comparison as CSV and JSON.

    Parameters
    ----------
    name
        A recipe, such as table1 or figure7. Without one, all are listed.
    scale
        smoke (seconds), cpu (minutes to hours on a laptop) or paper (the paper's own settings).
    data
        Folder with the data sets (default: data).
    list_
        List the recipes, what each shows, and what it costs.
    """
    from prunus.search.settings_file import merge
    from prunus.search.sweep.library import named_recipe

    if name is None or list_:
        _list()
        return
    whole = named_recipe(name)
    recipe = whole.at_scale(scale)
    if data is not None:
        settings = merge(recipe.settings, {"data_root": str(data)})
        recipe = recipe.model_copy(update={"settings": settings})
    out = doing.out or folder_for(recipe, scale)
    failure = None
    try:
        do_runs(recipe, out, doing)
    except SweepFailedError as error:
        failure = error  # to be told at the end, below what the others found
    if not doing.dry_run:
        _show(recipe, whole.scales[scale].get("stand_ins", {}), scale, out)
    if failure is not None:
        raise failure


def _list() -> None:
    from prunus.search.sweep.library import named_recipe, recipe_names
    from prunus.search.sweep.plan import outline
    from prunus.tables import text_table

    rows = []
    for name in recipe_names():
        recipe = named_recipe(name)
        plans = [outline(recipe.at_scale(scale)) for scale in SCALES]
        costs = [f"{len(plan):,} / {sum(run.epochs for run in plan):,}" for plan in plans]
        rows.append([name, *costs])
        print(f"{name:<9} {recipe.description}")
    print("\nRuns / epochs of training, by scale:\n")
    print(text_table(["recipe", *SCALES], rows))
    print("\nprunus reproduce NAME --scale SCALE")


def _show(recipe: SweepRecipe, stand_ins: dict[str, str], scale: str, out: Path) -> None:
    from prunus.report import beside
    from prunus.report.comparison import comparisons
    from prunus.report.runs import read_runs
    from prunus.tables import text_table

    found = read_runs(out)
    print(make_report(found, out, out, Files(csv=out / "selections.csv", svg=True)))
    paper = recipe.paper
    if paper is None:
        return
    ours = comparisons(found.records)
    print(f"\nBeside the paper: {paper.where}")
    for original, stand_in in stand_ins.items():
        print(f"({stand_in} stands in for the paper's {original}.)")
    tables = [
        beside.pairs_table(beside.pairs(paper, ours))
        if paper.numbers
        else beside.points_table(ours)
    ]
    if paper.blocks is not None:
        tables.append(beside.blocks_table(found.records, paper.blocks))
    for table in tables:
        print(f"\n{text_table(table.header, table.rows, table.left)}")
    print("\nThe paper says:", *(f"- {claim}" for claim in paper.claims), "", sep="\n")
    about = {
        "recipe": recipe.name,
        "scale": scale,
        "description": recipe.description,
        "stand_ins": stand_ins,
    }
    for path in beside.write_pairs(out / f"{recipe.name}-{scale}", about, paper, ours):
        print(f"Comparison: {path}")
