"""An experiment: a YAML file that names many runs. Some come with Prunus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from prunus.errors import SettingError
from prunus.lookup import unknown
from prunus.runs.settings_file import merge, read_settings
from prunus.schema import Schema

DENSE = "dense"
"""The row of the baselines."""

Settings = dict[str, Any]
"""Whatever `prunus.runs.resolve` takes."""


def _listed(value: Any) -> Any:
    """One thing stands for a list of one."""
    return [value] if isinstance(value, str | Mapping) else value


def _by_task(value: Any) -> Any:
    """Names alone are tasks without settings of their own."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return {name: {} for name in value}
    if isinstance(value, Mapping):
        return {name: settings or {} for name, settings in value.items()}
    return value


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _retraining(value: Any) -> Any:
    """`then: retrain` is the re-training of every ticket."""
    value = _listed(value or [])
    if not isinstance(value, list):
        return value
    return [{} if item == "retrain" else item for item in value]


Tasks = Annotated[dict[str, Settings], BeforeValidator(_by_task), Field(min_length=1)]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
Grid = dict[str, Annotated[list[Any], Field(min_length=1)]]
"""Dotted setting -> its values. `a, b` -> pairs of values that go together."""


class Retraining(Schema):
    """What to do with the tickets of a row's runs: train them from `w^(k)`."""

    retrain: Literal["all", "last"] | tuple[Annotated[int, Field(ge=1)], ...] = "all"
    """The tickets of all rounds, of the last one, or of the rounds with these numbers."""
    task: str | None = None
    """Another task to take the ticket to."""
    settings: Settings = Field(default_factory=dict)
    """On top of those that the ticket was found with; `control` makes it a control."""
    row: str | None = None
    """Its row in the tables; by default that of the ticket, except for controls and transfer."""


class Row(Schema):
    """One row of the tables: a method, or something else to compare, over a grid of settings."""

    row: str | None = None
    """Its name; by default the method's."""
    command: Literal["train", "search", "prune"] = "search"
    method: Annotated[Settings | None, BeforeValidator(_named)] = None
    """Its name, or its name and settings."""
    settings: Settings = Field(default_factory=dict)
    by_task: dict[str, Settings] = Field(default_factory=dict)
    """Over `settings`, on one task only."""
    grid: Grid = Field(default_factory=dict)
    seeds: Seeds | None = None
    tasks: Annotated[tuple[str, ...] | None, BeforeValidator(_listed)] = None
    """Some of the experiment's tasks only."""
    rates_of: str | None = None
    """A row of searches: IMP is run once for each of them, at the rates of that search."""
    even_rates: bool = False
    """With `rates_of`: the same rate in each of its own rounds, to the same density in the end."""
    then: Annotated[tuple[Retraining, ...], BeforeValidator(_retraining)] = ()

    @property
    def name(self) -> str:
        if self.row is not None:
            return self.row
        return DENSE if self.command == "train" else self.method_name

    @property
    def method_name(self) -> str:
        return str((self.method or {}).get("name", "cs"))


class RowChange(Schema):
    """What a scale changes in the rows of one name."""

    settings: Settings = Field(default_factory=dict)
    by_task: dict[str, Settings] = Field(default_factory=dict)
    grid: Grid = Field(default_factory=dict)
    seeds: Seeds | None = None
    then: Annotated[tuple[Retraining, ...] | None, BeforeValidator(_retraining)] = None


class Scale(Schema):
    """What another budget changes. Settings and grids are merged over the experiment's."""

    tasks: Tasks | None = None
    stand_ins: dict[str, str] = Field(default_factory=dict)
    """Task of the experiment -> the task that is run in its place."""
    seeds: Seeds | None = None
    settings: Settings = Field(default_factory=dict)
    dense: Settings | bool | None = None
    rows: dict[str, Settings] = Field(default_factory=dict)
    """Name of a row -> a `RowChange`."""


class Experiment(Schema):
    """Tasks, rows and seeds; every row is run on every task with every seed."""

    name: Annotated[str, Field(pattern=r"^\.*[\w-][\w.-]*$")]
    """Also that of its folder."""
    description: str = ""
    tasks: Tasks
    """Names, or names with the settings of each."""
    seeds: Seeds = (0,)
    settings: Settings = Field(default_factory=dict)
    """Of all runs; what a command does not have (`rounds`, for `prune`) is left out there."""
    dense: Settings | bool = True
    """Whether there is a dense baseline for each task and seed, or its own settings."""
    resources: dict[str, float] = Field(default_factory=dict)
    """What a run needs of a worker of a cluster, such as `GPU: 1`."""
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]
    scales: dict[str, Settings] = Field(default_factory=dict)
    paper: Settings | None = None
    """What the paper says of the same experiment; `prunus.report.paper` reads it."""

    def at_scale(self, name: str | None) -> Experiment:
        """This experiment with one of its scales applied; None leaves it as it is."""
        if name is None:
            return self
        if name not in self.scales:
            raise unknown("scale", name, self.scales)
        scale = Scale.parse(self.scales[name], within=f"scales.{name}")
        names = {row.name for row in self.rows}
        for row_name in scale.rows:
            if row_name not in names:
                raise unknown(f"row (of scales.{name}.rows)", row_name, names)
        changes = {
            row_name: RowChange.parse(change, within=f"scales.{name}.rows.{row_name}")
            for row_name, change in scale.rows.items()
        }
        for task in scale.stand_ins:
            if task not in self.tasks:
                raise unknown(f"task (of scales.{name}.stand_ins)", task, self.tasks)
        rows = (_standing_in(row, scale.stand_ins) for row in self.rows)
        update: dict[str, Any] = {
            "settings": merge(self.settings, scale.settings),
            "tasks": {scale.stand_ins.get(task, task): own for task, own in self.tasks.items()},
            "rows": tuple(_changed(row, changes.get(row.name)) for row in rows),
        }
        for field in ("tasks", "seeds", "dense"):
            value = getattr(scale, field)
            if value is not None:
                update[field] = value
        return self.model_copy(update=update)


def _changed(row: Row, change: RowChange | None) -> Row:
    if change is None:
        return row
    return row.model_copy(
        update={
            "settings": merge(row.settings, change.settings),
            "by_task": merge(row.by_task, change.by_task),
            "grid": {**row.grid, **change.grid},
            "seeds": change.seeds or row.seeds,
            "then": row.then if change.then is None else change.then,
        }
    )


def _standing_in(row: Row, stand_ins: Mapping[str, str]) -> Row:
    """The row with other tasks for those that something stands in for."""
    tasks = row.tasks and tuple(stand_ins.get(task, task) for task in row.tasks)
    then = tuple(
        what.model_copy(update={"task": what.task and stand_ins.get(what.task, what.task)})
        for what in row.then
    )
    by_task = {stand_ins.get(task, task): own for task, own in row.by_task.items()}
    return row.model_copy(update={"tasks": tasks, "then": then, "by_task": by_task})


def read_experiment(path: Path) -> Experiment:
    """The experiment in a YAML file, with all its scales checked."""
    content = read_settings(path)
    try:
        experiment = Experiment.parse(content)
        for name in experiment.scales:
            experiment.at_scale(name)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from error
    return experiment


# The experiments that come with Prunus


def experiments_folder() -> Path:
    """Inside an installed package; in a clone, at its top where everybody sees it."""
    package = Path(__file__).parents[1]
    inside = package / "experiments"
    return inside if inside.is_dir() else package.parents[1] / "experiments"


def experiment_names() -> list[str]:
    """Tables of the paper first, then its figures by their number, then the others."""
    names = [path.stem for path in experiments_folder().glob("*.yaml")]
    kinds = ("table", "figure")

    def place(name: str) -> tuple[int, int, str]:
        kind = next((i for i, kind in enumerate(kinds) if name.startswith(kind)), len(kinds))
        return kind, len(name) if kind < len(kinds) else 0, name

    return sorted(names, key=place)


def named_experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in experiment_names():
        raise unknown("experiment", name, experiment_names())
    return read_experiment(experiments_folder() / f"{name}.yaml")
