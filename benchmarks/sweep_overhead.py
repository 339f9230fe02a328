"""What a sweep costs beside its runs, and what two workers gain.

Overhead: a plan of many runs that do nothing but write their results, in local workers that have
started already. Efficiency: twelve equal runs on digits with one worker and with two; 1 means that
two take half the time. Both include the state file; starting the workers is left out of both.

Run `python benchmarks/sweep_overhead.py` on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prunus.files import write_atomically
from prunus.search.settings import COMMANDS
from prunus.search.sweep import LocalExecutor, SweepRecipe, make_plan, run_sweep, scheduler
from prunus.search.sweep.work import run_one
from prunus.tables import text_table


def do_nothing(given: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """A run that is finished at once."""
    folder = COMMANDS["train"].parse(given).folder
    folder.mkdir(parents=True)
    results = {"finished": True, "threads": threads, "stages": [{"density": 1.0}]}
    (folder / "results.json").write_text(json.dumps(results))
    return results


def recipe(runs: int, epochs: int) -> SweepRecipe:
    return SweepRecipe.parse(
        {
            "name": "overhead",
            "tasks": "digits/digits_convnet",
            "seeds": list(range(runs)),
            "settings": {"recipe": {"epochs": epochs}, "engine": {"accelerator": "cpu"}},
            "dense": False,
            "rows": [{"command": "train"}],
        }
    )


def warm_up(executor: LocalExecutor, folder: Path) -> None:
    """Let every worker start, import and load: each gets one of as many runs."""
    plan = make_plan(recipe(executor.workers, 1), folder)
    given = [run.settings.model_dump(mode="json") for run in plan if run.settings]
    list(executor.map(run_one, given))


def overhead(runs: int, workers: int, folder: Path) -> dict[str, float]:
    with LocalExecutor(workers, gpus=[]) as executor:
        warm_up(executor, folder / "warm")
        start = time.perf_counter()
        plan = make_plan(recipe(runs, 1), folder / "nothing")
        planned = time.perf_counter()
        scheduler.run_one = do_nothing  # type: ignore[assignment]
        run_sweep(recipe(runs, 1), folder / "nothing", executor, plan=plan)
        scheduler.run_one = run_one
        end = time.perf_counter()
    return {
        "runs": runs,
        "workers": workers,
        "planning, ms a run": 1000 * (planned - start) / runs,
        "scheduling, ms a run": 1000 * (end - planned) / runs,
    }


def efficiency(runs: int, epochs: int, folder: Path) -> dict[str, float]:
    seconds = []
    for workers in (1, 2):
        with LocalExecutor(workers, gpus=[]) as executor:
            warm_up(executor, folder / f"warm-{workers}")
            start = time.perf_counter()
            run_sweep(recipe(runs, epochs), folder / f"workers-{workers}", executor)
            seconds.append(time.perf_counter() - start)
    one, two = seconds
    return {
        "runs": runs,
        "one worker, s": one,
        "two workers, s": two,
        "efficiency": one / (2 * two),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/sweep_overhead.json"))
    parser.add_argument("--runs", type=int, default=1000, help="runs that do nothing")
    parser.add_argument("--epochs", type=int, default=60, help="of each of the twelve runs")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        results = {
            "overhead": overhead(arguments.runs, 2, Path(folder) / "overhead"),
            "efficiency": efficiency(12, arguments.epochs, Path(folder) / "efficiency"),
        }
    for name, numbers in results.items():
        print(f"\n{text_table([name, ''], [[k, f'{v:,.2f}'] for k, v in numbers.items()])}")
    write_atomically(arguments.out, json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
