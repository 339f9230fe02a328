"""What a run found, as text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from prunus.runs.results import RunResults, StageResult
from prunus.sweeps.bisection import Bisection
from prunus.tables import percent, printable, text_table


def show_results(results: RunResults, folder: Path, *, finished: datetime | None = None) -> None:
    """The stages as a table, and what else there is to know about the run.

    `finished`: when, if it was before this command.
    """
    several = len(results.metrics) > 1
    names = [
        f"{split} {metric.name}" if several else split
        for split in ("validation", "test")
        for metric in results.metrics
    ]
    header = ["stage", "epochs", "kept", "of network", *names, "ticket"]
    rows = [
        [
            stage.stage,
            str(stage.epochs),
            percent(stage.density),
            "" if stage.network_density is None else percent(stage.network_density),
            *_values(results, stage),
            stage.ticket or "",
        ]
        for stage in results.stages
    ]
    print(f"\n{text_table(header, rows)}")
    if results.stages and (caution := results.stages[-1].caution):
        print(f"\n{caution}")
    if results.control:
        print(f"\nA control ({printable(results.control)}), not the ticket itself.")
    if results.epochs_before:
        before, after = results.epochs_before, results.stages[-1].epochs
        print(
            f"\nThe ticket's weights are from epoch {before} of {before + after}: re-trained for "
            f"the {after} that are left, to train no longer than the dense network."
        )
    if results.not_transferred:
        print("\nNot transferred, and so trained from random values:")
        for name, why in results.not_transferred.items():
            print(printable(f"  {name} ({why})"))
    if finished is not None:
        print(f"\nFinished on {finished:%Y-%m-%d at %H:%M}, not now: --fresh does it again.")
    print(f"\nRun: {folder}")


def _values(results: RunResults, stage: StageResult) -> Iterator[str]:
    for values in (stage.validation, stage.test):
        for metric in results.metrics:
            yield metric.text(values[metric.name]) if metric.name in values else ""


def show_bisection(found: Bisection) -> None:
    """All values that were tried, and how near the best one is."""
    rows = [
        [
            f"{trial.value:g}",
            percent(trial.density),
            "" if trial.network_density is None else percent(trial.network_density),
        ]
        for trial in found.trials
    ]
    print(f"\nBisection for {percent(found.target_density)}:")
    print(text_table([found.setting, "kept", "of network"], rows))
    print(f"Shown above: the nearest, with {found.setting} {found.best.value:g}.")
    if not found.near_enough:
        print(
            f"That is {percent(found.error)} off after {len(found.trials)} runs. More epochs may "
            "help; methods with a target density (cs without --bisect) end exactly there."
        )
