"""Sweeps: the many runs of an experiment, in parallel, on one machine or many."""

from prunus.sweeps.bisection import Bisection, bisect_runs, find_setting
from prunus.sweeps.executors.cluster import dask_executor
from prunus.sweeps.executors.local import LocalExecutor
from prunus.sweeps.experiment import Experiment, read_experiment
from prunus.sweeps.plan import make_plan
from prunus.sweeps.planned import AwaitsRates, AwaitsTicket, Planned, Ready
from prunus.sweeps.scheduler import run_sweep
from prunus.sweeps.state import RunState, SweepFile, survey
from prunus.sweeps.work import RunFailedError, run_one

__all__ = [
    "AwaitsRates",
    "AwaitsTicket",
    "Bisection",
    "Experiment",
    "LocalExecutor",
    "Planned",
    "Ready",
    "RunFailedError",
    "RunState",
    "SweepFile",
    "bisect_runs",
    "dask_executor",
    "find_setting",
    "make_plan",
    "read_experiment",
    "run_one",
    "run_sweep",
    "survey",
]
