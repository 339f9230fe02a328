"""`prunus sweep`: all runs of a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prunus.cli.options import Doing
from prunus.errors import PrunusError, SettingError

if TYPE_CHECKING:
    from prunus.search.sweep import Progress, SweepRecipe


class SweepFailedError(PrunusError, RuntimeError):
    """Some runs of a sweep failed."""

    status = 1


def sweep(
    recipe: Path,
    *,
    scale: str | None = None,
    doing: Doing = Doing(),  # noqa: B008 (frozen)
) -> None:
    """Do all runs that a recipe describes, side by side.

    Run the same command again and it goes on where it was; finished runs are not repeated. Runs
    that failed are tried again with --retry only. The exit status is 1 if any has failed.

    Parameters
    ----------
    recipe
        A YAML file; see docs/sweeps.md.
    scale
        One of the recipe's scales: smoke, cpu, paper, ...
    """
    from prunus.search.sweep import read_recipe

    chosen = read_recipe(recipe).at_scale(scale)
    do_runs(chosen, doing.out or folder_for(chosen, scale), doing)


def folder_for(recipe: SweepRecipe, scale: str | None) -> Path:
    """Where a sweep goes unless somebody says otherwise."""
    return Path("runs") / (recipe.name if scale is None else f"{recipe.name}-{scale}")


def do_runs(recipe: SweepRecipe, out: Path, doing: Doing) -> None:
    """Do the runs of a recipe, or list them; raises `SweepFailedError` if not all are finished."""
    from prunus.search.sweep import LocalExecutor, dask_executor, make_plan, run_sweep
    from prunus.search.sweep import survey as look
    from prunus.search.sweep.display import Display
    from prunus.search.sweep.sweeping import sweep_file

    if doing.cluster is not None and doing.workers is not None:
        raise SettingError("--workers are processes on this machine: leave out, or --cluster")
    plan = make_plan(recipe, out, fetch_missing=doing.download)
    if doing.dry_run:
        _list(look(plan, sweep_file(recipe, out).failures()))
        return
    with (
        LocalExecutor(doing.workers, threads=doing.threads, logs=out / "logs")
        if doing.cluster is None
        else dask_executor(doing.cluster, recipe.resources)
    ) as executor:
        runs = run_sweep(
            *(recipe, out, executor),
            plan=plan,
            threads=doing.threads,
            retry=doing.retry,
            display=Display(),
        )
    _summarise(runs, out)


def _list(runs: Sequence[Progress]) -> None:
    from prunus.search.sweep.watch import describe
    from prunus.tables import text_table

    rows = []
    for run in runs:
        status = f"failed: {run.error}" if run.error else run.status
        rows.append([describe(run), str(run.planned.epochs), status])
    print(text_table(["run", "epochs", "status"], rows))
    finished = sum(run.status == "finished" for run in runs)
    print(f"\n{len(runs)} runs, {finished} of them finished.")


def _summarise(runs: Sequence[Progress], out: Path) -> None:
    from prunus.search.sweep.watch import describe

    failed = [run for run in runs if run.status == "failed"]
    finished = sum(run.status == "finished" for run in runs)
    waiting = len(runs) - finished - len(failed)
    print(f"\n{finished} of {len(runs)} runs are finished.\nSweep: {out}")
    if failed:
        causes = "\n".join(f"  {describe(run)}: {run.error}" for run in failed)
        others = f", and {waiting} wait" if waiting else ""
        raise SweepFailedError(
            f"{len(failed)} of {len(runs)} runs failed{others}. The same command with --retry "
            f"tries them again:\n{causes}"
        )
    if waiting:
        raise SweepFailedError(
            f"{waiting} runs were stopped or lost their workers; the same command goes on with them"
        )
