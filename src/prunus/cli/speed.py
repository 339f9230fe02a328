"""Speed on the command line: a speed-up to prune for, and the speed of networks that runs found."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

from prunus.cli.deploy import example_of, task_of
from prunus.errors import PrunusError, PrunusWarning, SettingError
from prunus.files import inside, parse_json, read_text, write_atomically
from prunus.tables import percent, printable

if TYPE_CHECKING:
    from prunus.deployment.speed import CostModel, DenseNetwork
    from prunus.report.records import Record
    from prunus.runs.results import RunResults, StageResult
    from prunus.runs.settings import RunSettings
    from prunus.runs.speed import Speed
    from prunus.tasks import Task
    from prunus.tickets.ticket import Ticket

BATCHES = (1, 128)
"""Of which reports show the speed."""
_SECONDS = 2.0
"""Of measuring a network, in turns with the dense one."""


@dataclass(frozen=True)
class SpeedupBudget:
    """What a speed-up that was asked for means: a fraction of the multiply-adds to keep."""

    speedup: float
    macs: float
    costs: CostModel

    @property
    def predicted(self) -> float:
        """By the calibration."""
        return self.costs.speedup(self.macs)

    def show(self, speed: Speed) -> None:
        """What was predicted, and what came of it."""
        print(
            f"\nSpeed-up: predicted {self.predicted:.1f}, measured "
            f"{speed.speedup:.1f} (batch of {speed.batch}, threads: {speed.threads}, against the "
            f"dense network in {speed.engine})"
        )

    def as_dict(self, speed: Speed) -> dict[str, Any]:
        """The same, for JSON."""
        about = {"asked": self.speedup, "target_macs": self.macs, "measured": speed.speedup}
        return {**about, **speed.model_dump(mode="json")}


def budget_for(speedup: float, batch: int, settings: RunSettings, task: Task) -> SpeedupBudget:
    """The budget of a run that asks for a speed-up.

    The calibration is kept beside the runs, and counts for all of the same task, weights and batch:
    the same command means the same budget, and so the same run, however busy the machine is.
    """
    if not speedup > 0 or batch < 1:
        raise SettingError(f"--target-speedup {speedup:g} --batch {batch}: both are above zero")
    method = getattr(settings, "method", {})
    if "target_macs" not in method:
        raise SettingError(
            f"--target-speedup needs a method that has a target_macs, and {method.get('name')} has "
            "none: cs, gmp, mp, netslim and dnw have"
        )
    if method["target_macs"] is not None:
        raise SettingError("--target-speedup and --target-macs are the same budget: give one")
    costs, path, new = _calibrated(batch, settings, task)
    budget = SpeedupBudget(speedup, costs.macs_for(speedup), costs)
    if new:  # and not before: what is refused leaves no folder
        write_atomically(path, json.dumps(costs.model_dump(mode="json"), indent=1) + "\n")
    print(
        f"Speed-up {speedup:g} against the dense network in {costs.engine} (batch of {batch}, "
        f"threads: {costs.threads}): {percent(budget.macs)} of the multiply-adds, by the "
        f"calibration {path} " + ("(just made)" if new else f"of {costs.created}")
    )
    return budget


def _calibrated(batch: int, settings: RunSettings, task: Task) -> tuple[CostModel, Path, bool]:
    """The cost model of a network, from its file if there is one; and whether it is new."""
    from prunus.deployment.speed import CostModel, calibrate
    from prunus.runs.origin import here
    from prunus.selection import choose

    method: dict[str, Any] = settings.method  # type: ignore[attr-defined]
    example = example_of(task, batch)
    select, exclude = method.get("select", "auto"), method.get("exclude")
    known = {
        "task": settings.task,
        "code": settings.code_fingerprint,
        "select": [select, exclude],
        "inputs": list(example.shape),
    }
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:10]
    path = settings.out / f"speedup-{digest}.json"
    try:
        return CostModel.parse(parse_json(read_text(path))), path, False
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise SettingError(f"the calibration {path} is damaged ({error}): delete it") from error
    model = task.build()
    found = calibrate(model, choose(model, select, exclude), example, _threads())
    about = {"processor": here().processor, "created": time.strftime("%Y-%m-%d %H:%M")}
    return found.model_copy(update=about), path, True


def _threads() -> int:
    from prunus.sweeps.executors.local import available_cores

    return available_cores()


@dataclass
class Speedometer:
    """Measures networks, in turns with the dense one of their task."""

    dense: dict[tuple[Any, ...], DenseNetwork] = field(default_factory=dict)

    def measure(self, task: Task, ticket: Ticket, batches: Iterable[int]) -> list[Speed]:
        """The speed of a ticket's network, with its own weights, whichever these are."""
        from prunus.deployment.deployed import deploy
        from prunus.deployment.speed import DenseNetwork, times
        from prunus.runs.origin import here
        from prunus.runs.speed import Speed

        examples = [example_of(task, batch) for batch in batches]
        place = (task.name, *examples[0].shape[1:])
        if place not in self.dense:
            self.dense[place] = DenseNetwork(task.build(), examples[0], _threads())
        dense = self.dense[place]
        network = deploy(ticket.apply(task.build()), None, examples[0], threads=dense.threads)
        found = []
        for x in examples:
            of_dense, of_network = times(dense, {"deployed": network}, x, _SECONDS)
            found.append(
                Speed(
                    batch=len(x),
                    threads=dense.threads,
                    deployed=len(x) / of_network["deployed"],
                    dense=len(x) / of_dense,
                    engine=dense.engine,
                    processor=here().processor,
                )
            )
        return found


def speed_of_run(
    folder: Path, results: RunResults, task: Task, batch: int, predicted: float
) -> Speed:
    """The speed of a run's last network, kept with what was predicted; as it was measured after the
    run, if it was."""
    from prunus.runs.speed import read_speeds, write_speeds
    from prunus.tickets.ticket import Ticket

    stage, known = results.stages[-1], read_speeds(folder)
    found = known.of(stage.stage, batch)
    if found is None:
        ticket = Ticket.load(folder / (stage.ticket or ""))
        [found] = Speedometer().measure(task, ticket, [batch])
    found = found.model_copy(update={"predicted": predicted})
    write_speeds(folder, known.with_speed(stage.stage, found))
    return found


def measure_records(
    records: Sequence[Record], data: Path | None, tell: Callable[[str], None]
) -> None:
    """Measure what has not been measured of networks in run folders, and write it there.

    What cannot be is left out, with a warning that names it.
    """
    from prunus.runs.speed import read_speeds, write_speeds
    from prunus.tickets.ticket import Ticket

    meter, tasks = Speedometer(), _Tasks(data)
    wanted = [place for record in records if (place := _place(record))]
    for folder, stage in {(f, s.stage): (f, s) for f, s in wanted}.values():
        known = read_speeds(folder)
        missing = [batch for batch in BATCHES if known.of(stage.stage, batch) is None]
        if not missing:
            continue
        try:
            path = folder / (stage.ticket or "")
            ticket = Ticket.load(path)
            task = tasks.of(path, ticket)
            for speed in meter.measure(task, ticket, missing):
                known = known.with_speed(stage.stage, speed)
        except (PrunusError, OSError, ValueError) as error:
            about = printable(f"the speed of {folder}, {stage.stage}, was not measured: {error}")
            warn(about, PrunusWarning, stacklevel=2)
            continue
        write_speeds(folder, known)
        tell(f"Measured: {folder}, {stage.stage}")


def _place(record: Record) -> tuple[Path, StageResult] | None:
    """Where the last network of a record is, unless it is dense."""
    if record.command == "train":
        return None
    measure, stage = list(record.measured.items())[-1]
    folder = record.retraining if measure == "re-trained" else record.folder
    return (folder, stage) if folder and stage.ticket and inside(stage.ticket, folder) else None


class _Tasks:
    """The tasks of tickets, each loaded once."""

    def __init__(self, data: Path | None) -> None:
        self._data = data
        self._known: dict[Any, Task] = {}

    def of(self, path: Path, ticket: Ticket) -> Task:
        from prunus.runs.settings import TaskOfRun
        from prunus.runs.settings_file import read_settings

        run = TaskOfRun.parse(read_settings(path.parent.parent / "settings.yaml"))
        key = (ticket.manifest.task, run.model_dump_json())
        if key not in self._known:
            self._known[key] = task_of(path, ticket, None, self._data)
        return self._known[key]
