"""From an experiment to the list of its runs, all checked before the first one starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from prunus.errors import PrunusError, SettingError
from prunus.files import expanded, resolved
from prunus.lookup import unknown
from prunus.runs.results import ticket_path
from prunus.runs.settings import COMMANDS, RunSettings, SearchSettings, complete_rounds, resolve
from prunus.runs.settings_file import merge, nested
from prunus.sweeps.experiment import DENSE, Experiment, Retraining, Row
from prunus.sweeps.grid import combinations, shown
from prunus.sweeps.planned import AwaitsRates, AwaitsTicket, Planned, Ready, load_cached
from prunus.tasks import Task
from prunus.tasks.registry import outline_task
from prunus.tickets.controls import OF_WHOLE_TICKETS, Control

_STAGE_OF_THE_TICKET = {"train": "training", "prune": "search"}
_SET_BY_THE_SWEEP = {
    "task": "tasks",
    "seed": "seeds",
    "out": "--out",
    "command": "a row's command",
    "ticket": "a row's then",
    "ticket_hash": "a row's then",
    "data_fingerprint": "the data themselves",
    "code_fingerprint": "the code itself",
}


def make_plan(
    experiment: Experiment, out: Path, *, data: Path | None = None, fetch_missing: bool = False
) -> list[Planned]:
    """All runs of an experiment in folders below `out`, those of the first seed first.

    A run comes after the one that it needs. Baselines come before everything else of their seed.
    `data` is the folder of the data, whatever the experiment says.
    """
    return _Planner(experiment, resolved(out), data, fetch_missing).plan()


def outline(experiment: Experiment) -> list[Planned]:
    """The plan as far as it can be known without the data."""
    return _Planner(experiment, Path("runs"), load=outline_task).plan()


@dataclass(frozen=True)
class _Source:
    """A run that leaves tickets, and what its re-trainings inherit."""

    run: Planned
    settings: RunSettings
    """Complete but for what the run waits for."""
    own: Mapping[str, Any]
    """Those of its row and place in the grid."""


class _Planner:
    def __init__(
        self,
        experiment: Experiment,
        out: Path,
        data: Path | None = None,
        fetch_missing: bool = False,
        load: Callable[..., Task] = load_cached,
    ) -> None:
        self.experiment, self.out, self.data = experiment, out, data
        self.fetch_missing, self.load = fetch_missing, load
        self.runs: dict[str, Planned] = {}

    def plan(self) -> list[Planned]:
        for task in self.experiment.tasks:
            for number, row in enumerate(self.experiment.rows):
                self._check_row(row, self.experiment.rows[:number])
                if row.tasks is None or task in row.tasks:
                    for seed in row.seeds or self.experiment.seeds:
                        self._add_row(task, row, seed)
        baselines = {run.id: run for run in self._baselines()}
        runs = (baselines | self.runs).values()
        seeds = list(dict.fromkeys([*self.experiment.seeds, *(run.seed for run in runs)]))
        return sorted(runs, key=lambda run: seeds.index(run.seed))

    def _check_row(self, row: Row, before: tuple[Row, ...]) -> None:
        for task in (*(row.tasks or ()), *row.by_task):
            if task not in self.experiment.tasks:
                raise unknown(f"task (of row {row.name!r})", task, self.experiment.tasks)
        searches = [other.name for other in before if other.command == "search"]
        if row.rates_of is not None and row.rates_of not in searches:
            raise unknown(f"search above row {row.name!r}", row.rates_of, searches)

    # Runs of a row

    def _add_row(self, task: str, row: Row, seed: int) -> None:
        for combination in combinations(row.grid):
            own = merge(row.settings, row.by_task.get(task, {}), nested(combination))
            if row.method is not None:
                own = merge({"method": row.method}, own)
            given = self._given(row.command, task, own, seed, row.name)
            if row.command == "prune" and row.then:
                default = SearchSettings.model_fields["rewind_epoch"].default
                given = {"rewind_epoch": default} | given
            elif row.command == "prune" and "rewind_epoch" not in own:
                given.pop("rewind_epoch", None)  # of the searches: nothing needs w^(k) here
            run = self._ready(row.command, given, row.name, row.method_name, shown(combination))
            sources = [_Source(run, run.settings, own)]
            if row.rates_of is not None:
                sources = list(self._with_rates(run, row, own, given))
            for source in sources:
                self.runs.setdefault(source.run.id, source.run)
                for retraining in row.then:
                    self._add_retrainings(source, retraining)

    def _ready(
        self,
        command: str,
        given: Mapping[str, Any],
        row: str,
        method: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Ready:
        settings = self._resolve(command, given, row)
        return Ready(
            id=f"{row}/{settings.folder.name}",
            command=command,
            task=settings.task,
            method=None if command == "train" else method,
            row=row,
            parameters=parameters or {},
            seed=settings.seed,
            epochs=_epochs(settings),
            settings=settings,
        )

    def _with_rates(
        self, run: Ready, row: Row, own: Mapping[str, Any], given: Mapping[str, Any]
    ) -> Iterator[_Source]:
        """The run once for each search of `row.rates_of`, with its rates and rounds."""
        if "rate" not in getattr(run.settings, "method", {}):
            raise SettingError(
                f"row {run.row!r}: rates_of is for searches by imp and imp-c, which have a rate; "
                f"this is {run.method} with the command {run.command}"
            )
        kind = "even-rates" if row.even_rates else "rates"
        for other in list(self.runs.values()):
            same = (other.row, other.task, other.seed) == (row.rates_of, run.task, run.seed)
            if same and isinstance(other, Ready) and isinstance(other.settings, SearchSettings):
                wanted = {**given, "rounds": own.get("rounds", other.settings.rounds)}
                settings = self._resolve("search", wanted, run.row)
                copied = AwaitsRates(
                    id=f"{run.row}/{other.key}/{kind}-{_digest(wanted)}",
                    command=run.command,
                    task=run.task,
                    method=run.method,
                    row=run.row,
                    parameters={**other.parameters, **run.parameters},
                    seed=run.seed,
                    epochs=_epochs(settings),
                    given=wanted,
                    needs=other.id,
                    even=row.even_rates,
                )
                yield _Source(copied, settings, own)

    def _add_retrainings(self, source: _Source, what: Retraining) -> None:
        run = source.run
        task = what.task or run.task
        row = what.row or _row_name(run, task, what.settings.get("control"))
        known = COMMANDS["retrain"].model_fields
        inherited = {name: value for name, value in source.own.items() if name in known}
        given = self._given("retrain", task, merge(inherited, what.settings), run.seed, row)
        control = given.get("control")
        if control is not None and control not in get_args(Control):
            raise unknown(f"control (of row {row!r})", str(control), get_args(Control))
        whole = getattr(source.settings, "whole_tickets", False)
        if control in OF_WHOLE_TICKETS and not whole:
            raise SettingError(
                f"row {row!r}: control {control!r} needs the weights that tickets remove: set "
                f"whole_tickets: true in the settings of row {run.row!r}"
            )
        if not isinstance(given.get("full", False), bool):
            raise SettingError(f"row {row!r}: full={given['full']!r} is neither true nor false")
        like = {name: value for name, value in given.items() if name not in ("control", "full")}
        there = self._resolve("train", like, row)
        # On another task: data and code that the key of the search says nothing of.
        found = [] if task == run.task else [there.data_fingerprint, there.code_fingerprint]
        digest = _digest({**given, "found": found} if any(found) else given)
        for stage in _stages_of_tickets(source, what):
            retraining = AwaitsTicket(
                id=f"{row}/{run.key}/{ticket_path(stage).stem}/{digest}",
                command="retrain",
                task=task,
                method=run.method,
                row=row,
                parameters=run.parameters,
                seed=run.seed,
                epochs=_epochs(there),
                given=given,
                needs=run.id,
                stage=stage,
            )
            self.runs.setdefault(retraining.id, retraining)

    def _baselines(self) -> Iterator[Planned]:
        """One for each task and seed that occurs."""
        dense = self.experiment.dense
        if dense is False:
            return
        own = {} if dense is True else dense
        for task, seed in dict.fromkeys((run.task, run.seed) for run in self.runs.values()):
            run = self._ready("train", self._given("train", task, own, seed, DENSE), DENSE)
            yield self.runs.setdefault(run.id, run)

    # Settings

    def _given(
        self, command: str, task: str, own: Mapping[str, Any], seed: int, row: str
    ) -> dict[str, Any]:
        """The settings of one run, for `resolve`: the experiment's, the task's, its own."""
        shared = merge(self.experiment.settings, self.experiment.tasks.get(task, {}))
        known = {name for schema in COMMANDS.values() for name in schema.model_fields}
        for name in (*shared, *own):
            if name in _SET_BY_THE_SWEEP:
                raise SettingError(
                    f"row {row!r}: the setting {name!r} is not for settings or a grid: it comes "
                    f"from {_SET_BY_THE_SWEEP[name]}"
                )
            if name not in known:
                raise unknown(f"setting (of row {row!r})", name, known - set(_SET_BY_THE_SWEEP))
        has = COMMANDS[command].model_fields
        given = merge({name: value for name, value in shared.items() if name in has}, own)
        if command == "search":
            with _naming(row):
                complete_rounds(given)
        data = self.data or given.get("data_root", "data")
        if isinstance(data, str | Path):
            data = str(Path.cwd() / expanded(data))
        return {**given, "task": task, "seed": seed, "out": str(self.out), "data_root": data}

    def _resolve(self, command: str, given: Mapping[str, Any], row: str) -> RunSettings:
        with _naming(row):
            settings, _ = resolve(command, given, load=self.load, fetch_missing=self.fetch_missing)
        if settings.engine.devices != 1 or settings.engine.nodes != 1:
            raise SettingError(
                f"row {row!r}: engine.devices={settings.engine.devices} and engine.nodes="
                f"{settings.engine.nodes}: a run of a sweep has one device; leave these out, and "
                "use more workers"
            )
        return settings


@contextmanager
def _naming(row: str) -> Iterator[None]:
    """Errors within this context name the row."""
    try:
        yield
    except PrunusError as error:
        raise SettingError(f"row {row!r}: {error}") from error


def _epochs(settings: RunSettings) -> int:
    rounds = settings.rounds if isinstance(settings, SearchSettings) else 1
    return rounds * settings.recipe.epochs


def _row_name(run: Planned, task: str, control: str | None) -> str:
    name = run.row if control is None else f"{run.row} ({control})"
    return name if task == run.task else f"{name} from {run.task}"


def _digest(given: Mapping[str, Any]) -> str:
    text = json.dumps({**given, "out": "", "data_root": ""}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _stages_of_tickets(source: _Source, what: Retraining) -> list[str]:
    """The stages of a run whose tickets are to be re-trained."""
    if isinstance(source.settings, SearchSettings):
        rounds = source.settings.rounds
        stages = [f"round {n}" for n in range(1, rounds + 1)]
    else:
        rounds = 1
        stages = [_STAGE_OF_THE_TICKET[source.run.command]]
    if what.retrain == "all":
        return stages
    if what.retrain == "last":
        return stages[-1:]
    missing = [n for n in what.retrain if n > rounds]
    if missing:
        raise SettingError(
            f"row {source.run.row!r}: retrain={list(what.retrain)} asks for the ticket of round "
            f"{missing[0]}, but there are {rounds}: give numbers up to that, or more rounds"
        )
    return [stages[n - 1] for n in what.retrain]
