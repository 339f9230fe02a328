"""Sweeps: many runs from one recipe, in parallel, on one machine or many."""

from prunus.search.sweep.cluster import dask_executor
from prunus.search.sweep.local import LocalExecutor
from prunus.search.sweep.plan import make_plan
from prunus.search.sweep.planned import Planned
from prunus.search.sweep.recipe import SweepRecipe, read_recipe
from prunus.search.sweep.state import Progress, SweepFile, survey
from prunus.search.sweep.sweeping import run_sweep
from prunus.search.sweep.work import RunFailedError, run_one

__all__ = [
    "LocalExecutor",
    "Planned",
    "Progress",
    "RunFailedError",
    "SweepFile",
    "SweepRecipe",
    "dask_executor",
    "make_plan",
    "read_recipe",
    "run_one",
    "run_sweep",
    "survey",
]
