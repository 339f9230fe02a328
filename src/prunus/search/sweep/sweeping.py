"""A whole sweep: plan, schedule, state."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from prunus.search.sweep.display import Display
from prunus.search.sweep.plan import make_plan
from prunus.search.sweep.planned import Planned
from prunus.search.sweep.recipe import SweepRecipe
from prunus.search.sweep.scheduler import Scheduler
from prunus.search.sweep.state import Progress, SweepFile
from prunus.training.folder_lock import FolderLock


def run_sweep(
    recipe: SweepRecipe,
    out: Path,
    executor: Executor,
    *,
    plan: Sequence[Planned] | None = None,
    threads: int = 1,
    retry: bool = False,
    display: Display | None = None,
) -> list[Progress]:
    """Do the runs of `recipe`, below `out`, that are not finished yet; returns how all ended.

    `executor` is any `concurrent.futures.Executor` whose workers can import Prunus and see the same
    files; it stays open. `plan` is the recipe's, if it has been made already. Runs that failed
    before are left alone unless `retry` is set.
    """
    runs = make_plan(recipe, out) if plan is None else plan
    file = sweep_file(recipe, out)
    lock = FolderLock(out)
    lock.acquire()
    try:
        shown = display or Display(quiet=True)
        return Scheduler(runs, executor, file, shown, threads=threads, retry=retry).run()
    finally:
        lock.release()


def sweep_file(recipe: SweepRecipe, out: Path) -> SweepFile:
    """Where the state of the sweep is."""
    return SweepFile(out, {"name": recipe.name, "recipe": recipe.model_dump(mode="json")})
