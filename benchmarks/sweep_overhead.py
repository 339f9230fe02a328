"""What a sweep costs beside its runs, and what two workers gain.

Overhead: a plan of many runs that do nothing but write their results, in local workers that have
started already. Efficiency: twelve equal runs on digits with one worker and with two, in turn; 1
means that two take half the time. Both include the state file, and neither the start of workers.

Run `python benchmarks/sweep_overhead.py` on a machine that has nothing else to do. A part's name
measures only that one and keeps what the file says of the other.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from prunus.files import write_atomically
from prunus.runs.results import RunResults, StageResult, write_results
from prunus.runs.settings import COMMANDS
from prunus.sweeps import Experiment, LocalExecutor, Ready, make_plan, run_one, run_sweep
from prunus.tables import text_table

Numbers = dict[str, float]


def do_nothing(complete: Mapping[str, Any], threads: int, _: tuple[str, ...]) -> RunResults:
    """A run that is finished at once."""
    settings = COMMANDS["train"].parse(complete)
    label = f"{settings.label} in {threads} threads"
    stage = StageResult(stage="training", epochs=0, density=1.0)
    results = RunResults(
        command="train",
        task=settings.task,
        label=label,
        seed=settings.seed,
        stages=(stage,),
        finished=True,
    )
    write_results(settings.folder, results)
    return results


class DoingNothing(Executor):
    """Calls `do_nothing` instead of the run."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, _: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._executor.submit(do_nothing, *args, **kwargs)


def experiment(runs: int, epochs: int) -> Experiment:
    return Experiment.parse(
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
    plan = make_plan(experiment(executor.workers, 1), folder)
    complete = [run.settings.model_dump(mode="json") for run in plan if isinstance(run, Ready)]
    list(executor.map(run_one, complete))


def overhead(folder: Path, runs: int, workers: int = 2) -> Numbers:
    with LocalExecutor(workers, gpus=[]) as executor:
        warm_up(executor, folder / "warm")
        start = time.perf_counter()
        plan = make_plan(experiment(runs, 1), folder / "nothing")
        planned = time.perf_counter()
        run_sweep(experiment(runs, 1), folder / "nothing", DoingNothing(executor), plan=plan)
        end = time.perf_counter()
    return {
        "runs": runs,
        "workers": workers,
        "planning, ms a run": 1000 * (planned - start) / runs,
        "scheduling, ms a run": 1000 * (end - planned) / runs,
    }


def efficiency(folder: Path, epochs: int, repeats: int, runs: int = 12) -> Numbers:
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with LocalExecutor(1, gpus=[]) as one, LocalExecutor(2, gpus=[]) as two:
        for executor in (one, two):
            warm_up(executor, folder / f"warm-{executor.workers}")
        for repeat in range(repeats):
            for executor in (one, two):
                start = time.perf_counter()
                out = folder / f"{repeat}-{executor.workers}"
                run_sweep(experiment(runs, epochs), out, executor)
                seconds[executor.workers].append(time.perf_counter() - start)
    ratios = [a / (2 * b) for a, b in zip(seconds[1], seconds[2], strict=True)]
    return {
        "runs": runs,
        "repeats": repeats,
        "one worker, s": median(seconds[1]),
        "two workers, s": median(seconds[2]),
        "efficiency": median(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=["overhead", "efficiency"])
    parser.add_argument("--out", type=Path, default=Path("results/sweeps.json"))
    parser.add_argument("--runs", type=int, default=1000, help="runs that do nothing")
    parser.add_argument("--epochs", type=int, default=40, help="of each of the twelve runs")
    parser.add_argument("--repeats", type=int, default=3, help="of the twelve runs")
    arguments = parser.parse_args()
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    with TemporaryDirectory() as place:
        folder = Path(place)
        if arguments.part != "efficiency":
            results["overhead"] = overhead(folder / "overhead", arguments.runs)
        if arguments.part != "overhead":
            results["efficiency"] = efficiency(
                folder / "efficiency", arguments.epochs, arguments.repeats
            )
    for name, numbers in results.items():
        print(f"\n{text_table([name, ''], [[k, f'{v:,.2f}'] for k, v in numbers.items()])}")
    write_atomically(arguments.out, json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
