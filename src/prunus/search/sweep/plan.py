"""From a recipe to the list of its runs, all checked before the first begins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from prunus.errors import PrunusError, SettingError
from prunus.lookup import unknown
from prunus.search.controls import Control
from prunus.search.settings import COMMANDS, RunSettings, SearchSettings, resolve
from prunus.search.settings_file import merge
from prunus.search.sweep.grid import nested, points, shown
from prunus.search.sweep.planned import Planned, load_cached
from prunus.search.sweep.recipe import DENSE, Retraining, Row, SweepRecipe
from prunus.tasks import Task
from prunus.tasks.registry import outline_task

_STAGE_OF_THE_TICKET = {"train": "training", "prune": "search"}
_GIVEN_BY_THE_SWEEP = {
    "task": "tasks",
    "seed": "seeds",
    "out": "--out",
    "command": "a row's command",
    "ticket": "a row's then",
    "ticket_hash": "a row's then",
    "data_fingerprint": "the data themselves",
}


def make_plan(recipe: SweepRecipe, out: Path, *, fetch_missing: bool = False) -> list[Planned]:
    """All runs of a recipe in folders below `out`, those of the first seed first.

    A run comes after the one that it needs. Baselines come before everything else of their seed.
    """
    return _Planner(recipe, out.resolve(), fetch_missing).plan()


def outline(recipe: SweepRecipe) -> list[Planned]:
    """The plan as far as it can be known without the data, for those who only want to look."""
    return _Planner(recipe, Path("runs"), load=outline_task).plan()


class _Planner:
    def __init__(
        self,
        recipe: SweepRecipe,
        out: Path,
        fetch_missing: bool = False,
        load: Callable[..., Task] = load_cached,
    ) -> None:
        self.recipe, self.out, self.fetch_missing, self.load = recipe, out, fetch_missing, load
        self.found: dict[str, Planned] = {}

    def plan(self) -> list[Planned]:
        for task in self.recipe.tasks:
            for number, row in enumerate(self.recipe.rows):
                self._check_row(row, self.recipe.rows[:number])
                if row.tasks is None or task in row.tasks:
                    for seed in row.seeds or self.recipe.seeds:
                        self._add_row(task, row, seed)
        baselines = {run.id: run for run in self._baselines()}
        runs = (baselines | self.found).values()
        seeds = list(dict.fromkeys([*self.recipe.seeds, *(run.seed for run in runs)]))
        return sorted(runs, key=lambda run: seeds.index(run.seed))

    def _check_row(self, row: Row, before: tuple[Row, ...]) -> None:
        for task in (*(row.tasks or ()), *row.by_task):
            if task not in self.recipe.tasks:
                raise unknown(f"task (of row {row.label!r})", task, self.recipe.tasks)
        searches = [other.label for other in before if other.command == "search"]
        if row.rates_of is not None and row.rates_of not in searches:
            raise unknown(f"search above row {row.label!r}", row.rates_of, searches)

    # Runs of a row

    def _add_row(self, task: str, row: Row, seed: int) -> None:
        for point in points(row.grid):
            own = merge(row.settings, row.by_task.get(task, {}), nested(point))
            if row.method is not None:
                own = merge({"method": row.method}, own)
            given = self._given(row.command, task, own, seed, row.label)
            if row.command == "prune" and row.then:
                given = {
                    "rewind_epoch": SearchSettings.model_fields["rewind_epoch"].default
                } | given
            elif row.command == "prune" and "rewind_epoch" not in own:
                given.pop("rewind_epoch", None)  # of the searches: nobody needs w^(k) here
            settings = self._resolve(row.command, given, row.label)
            run = Planned(
                id=f"{row.label}/{settings.folder.name}",
                command=row.command,
                task=task,
                method=None if row.command == "train" else row.method_name,
                row=row.label,
                parameters=shown(point),
                seed=seed,
                given=given,
                epochs=_epochs(settings),
                settings=settings,
            )
            runs = [run] if row.rates_of is None else list(self._with_rates(run, row.rates_of, own))
            for run in runs:
                self.found.setdefault(run.id, run)
                for retraining in row.then:
                    self._add_retrainings(run, settings, own, retraining)

    def _with_rates(self, run: Planned, label: str, own: Mapping[str, Any]) -> Iterator[Planned]:
        """The run once for each search of the row `label`, with the rates and rounds of that."""
        assert run.settings is not None
        if "rate" not in getattr(run.settings, "method", {}):
            raise SettingError(
                f"row {run.row!r}: rates_of is for searches by imp and imp-c, which have a rate; "
                f"this is {run.method} with the command {run.command}"
            )
        for other in list(self.found.values()):
            same = (other.row, other.task, other.seed) == (label, run.task, run.seed)
            if same and isinstance(other.settings, SearchSettings):
                given = {**run.given, "rounds": own.get("rounds", other.settings.rounds)}
                yield replace(
                    run,
                    id=f"{run.row}/{other.id}/rates-{_digest(given)}",
                    parameters={**other.parameters, **run.parameters},
                    given=given,
                    epochs=_epochs(self._resolve("search", given, run.row)),
                    settings=None,
                    needs=other.id,
                    takes="rates",
                )

    def _add_retrainings(
        self, run: Planned, settings: RunSettings, own: Mapping[str, Any], what: Retraining
    ) -> None:
        task = what.task or run.task
        label = what.row or _label(run, task, what.settings.get("control"))
        known = COMMANDS["retrain"].model_fields
        kept = {name: value for name, value in own.items() if name in known}
        given = self._given("retrain", task, merge(kept, what.settings), run.seed, label)
        control = given.get("control")
        if control is not None and control not in get_args(Control):
            raise unknown(f"control (of row {label!r})", str(control), get_args(Control))
        if control in ("shuffled", "random") and not getattr(settings, "whole_tickets", False):
            raise SettingError(
                f"row {label!r}: control {control!r} needs the weights that tickets remove: set "
                f"whole_tickets: true in the settings of row {run.row!r}"
            )
        like = {name: value for name, value in given.items() if name != "control"}
        epochs = _epochs(self._resolve("train", like, label))
        if run.command == "search":
            rounds = run.given.get("rounds", getattr(settings, "rounds", 1))
            stages = [f"round {number}" for number in range(1, rounds + 1)]
        else:
            stages = [_STAGE_OF_THE_TICKET[run.command]]
        for stage in stages if what.retrain == "all" else stages[-1:]:
            name = f"{run.id}/{stage.replace(' ', '-')}/{label}-{_digest(given)}"
            self.found.setdefault(
                name,
                replace(
                    run,
                    id=name,
                    command="retrain",
                    task=task,
                    row=label,
                    given=given,
                    epochs=epochs,
                    settings=None,
                    needs=run.id,
                    takes="ticket",
                    stage=stage,
                ),
            )

    def _baselines(self) -> Iterator[Planned]:
        """One for each task and seed that occurs."""
        if self.recipe.dense is False:
            return
        own = {} if self.recipe.dense is True else self.recipe.dense
        for task, seed in dict.fromkeys((run.task, run.seed) for run in self.found.values()):
            given = self._given("train", task, own, seed, DENSE)
            settings = self._resolve("train", given, DENSE)
            run = Planned(
                id=f"{DENSE}/{settings.folder.name}",
                command="train",
                task=task,
                method=None,
                row=DENSE,
                parameters={},
                seed=seed,
                given=given,
                epochs=_epochs(settings),
                settings=settings,
            )
            yield self.found.setdefault(run.id, run)

    # Settings

    def _given(
        self, command: str, task: str, own: Mapping[str, Any], seed: int, label: str
    ) -> dict[str, Any]:
        """The settings of one run, as `resolve` takes them: the recipe's, the task's, its own."""
        shared = merge(self.recipe.settings, self.recipe.tasks.get(task, {}))
        known = {name for schema in COMMANDS.values() for name in schema.model_fields}
        for name in (*shared, *own):
            if name in _GIVEN_BY_THE_SWEEP:
                place = _GIVEN_BY_THE_SWEEP[name]
                raise SettingError(
                    f"row {label!r}: the setting {name!r} is not for settings or a grid: it comes "
                    f"from {place}"
                )
            if name not in known:
                settable = known - set(_GIVEN_BY_THE_SWEEP)
                raise unknown(f"setting (of row {label!r})", name, settable)
        has = COMMANDS[command].model_fields
        given = merge({name: value for name, value in shared.items() if name in has}, own)
        data_root = str(Path(given.get("data_root", "data")).resolve())
        return {**given, "task": task, "seed": seed, "out": str(self.out), "data_root": data_root}

    def _resolve(self, command: str, given: Mapping[str, Any], label: str) -> RunSettings:
        try:
            settings, _ = resolve(command, given, load=self.load, fetch_missing=self.fetch_missing)
        except PrunusError as error:
            raise SettingError(f"row {label!r}: {error}") from error
        if settings.engine.devices != 1 or settings.engine.nodes != 1:
            raise SettingError(
                f"row {label!r}: engine.devices={settings.engine.devices} and engine.nodes="
                f"{settings.engine.nodes}: a run of a sweep has one device; leave these out, and "
                "use more workers"
            )
        return settings


def _epochs(settings: RunSettings) -> int:
    rounds = settings.rounds if isinstance(settings, SearchSettings) else 1
    return rounds * settings.recipe.epochs


def _label(run: Planned, task: str, control: str | None) -> str:
    label = run.row if control is None else f"{run.row} ({control})"
    return label if task == run.task else f"{label} from {run.task}"


def _digest(given: Mapping[str, Any]) -> str:
    text = json.dumps({**given, "out": "", "data_root": ""}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
