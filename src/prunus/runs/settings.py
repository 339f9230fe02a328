"""The settings of a run: from a file and the command line, checked, complete, and written down."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from warnings import warn

from pydantic import AfterValidator, Field, PlainSerializer

from prunus.errors import PrunusWarning, SettingError
from prunus.lookup import source_hash, unknown
from prunus.methods import find_method
from prunus.runs.method_settings import MethodSettings, determining
from prunus.schema import ADDED, NO_EFFECT, Schema
from prunus.tasks import RECIPES, Recipe, Task, load_task
from prunus.tasks.data import DataOptions
from prunus.tasks.recipes import RecipeChanges
from prunus.tickets.controls import Control
from prunus.tickets.ticket import Manifest, Ticket
from prunus.training.settings import EngineSettings
from prunus.training.trackers import TrackerName

_HASH_LENGTH = 10


def _possible(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError(f"{str(path)!r:.200} is no path: it has a zero byte")
    return path


Folder = Annotated[Path, AfterValidator(_possible), PlainSerializer(str)]

# Stands for the recipe of a task that is not loaded yet.
_NOT_YET_KNOWN = Recipe(epochs=1, batch_size=1)


class RunSettings(Schema):
    """What every command has. `identity` says what determines the result."""

    command: str
    task: str
    seed: int = Field(default=0, ge=0)
    recipe: Recipe
    data: DataOptions = DataOptions()
    engine: EngineSettings = EngineSettings()
    checkpoint_every: Annotated[int | None, NO_EFFECT] = Field(default=500, ge=1)
    """Steps between two checkpoints; there is one at the end of each epoch anyway."""
    trackers: Annotated[tuple[TrackerName, ...], NO_EFFECT] = ()
    data_root: Annotated[Folder, NO_EFFECT] = Path("data")
    data_fingerprint: str = ""
    """What the data themselves add to their name and options; `resolve` finds it out."""
    code_fingerprint: Annotated[str, ADDED] = ""
    """A hash of your own code that the task and the method name; `resolve` finds it out."""
    out: Annotated[Folder, NO_EFFECT] = Path("runs")

    @property
    def label(self) -> str:
        """What the run does, for the name of its folder."""
        return self.command

    @property
    def names(self) -> list[str]:
        """The names of the task and the method, which may stand for code."""
        return [self.task]

    @property
    def folder(self) -> Path:
        """Where the run lives. The name ends in a hash of all that determines the result."""
        text = json.dumps(self.identity(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
        return self.out / f"{_slug(self.task)}-{self.label}-{digest}"

    @classmethod
    def base_recipe(cls, task: Task) -> Recipe:
        """The recipe that the settings change."""
        return task.recipe


class TaskOfRun(Schema, extra="ignore"):
    """What a run's settings, of any command, say about its task."""

    task: str = ""
    data: DataOptions = DataOptions()
    data_root: Folder = Path("data")
    code_fingerprint: str = ""
    method: dict[str, Any] = Field(default_factory=dict)

    def check_code(self, name: str) -> None:
        """Warn if the code of task `name` is not the one that the run was made with."""
        own_method = ":" in str(self.method.get("name"))  # is in the fingerprint too
        if name == self.task and not own_method and source_hash([name]) != self.code_fingerprint:
            warn(
                f"the code of {name} is not the one that the run was made with: it has changed",
                PrunusWarning,
                stacklevel=2,
            )


class TrainSettings(RunSettings):
    """Train the dense network."""

    command: Literal["train"]


class _WithMethod(RunSettings):
    method: dict[str, Any]
    """The method's name, and its own settings."""
    whole_tickets: Annotated[bool, ADDED] = False
    """Whether tickets also hold the weights that they remove, for other masks as controls."""

    @property
    def label(self) -> str:
        return f"{_slug(self.method['name'])}-{self.command}"

    @property
    def names(self) -> list[str]:
        return [self.task, self.method["name"]]

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "method": determining(self.method)}

    def make_method(self) -> MethodSettings:
        """The method, ready to attach."""
        own = {key: value for key, value in self.method.items() if key != "name"}
        return MethodSettings(self.method["name"], own)


class SearchSettings(_WithMethod):
    """Search tickets in several rounds."""

    command: Literal["search"]
    rounds: int = Field(default=5, ge=1)
    rewind_epoch: float = Field(default=2, ge=0)
    """The epoch `k` whose weights become those of the tickets; may lie inside one."""


class PruneSettings(_WithMethod):
    """Search, fix the mask, fine-tune."""

    command: Literal["prune"]
    rewind_epoch: Annotated[float | None, ADDED] = Field(default=None, ge=0)
    """Also save the ticket with the weights of this epoch, so that the same subnetwork can be both
    fine-tuned and re-trained."""

    @classmethod
    def base_recipe(cls, task: Task) -> Recipe:
        return task.pruning_recipe


class RetrainSettings(RunSettings):
    """Train a ticket's subnetwork from its weights `w^(k)`."""

    command: Literal["retrain"]
    ticket: Annotated[Folder, NO_EFFECT]
    ticket_hash: str = ""
    """Of mask, weights, task and rewind point: these determine the result, not the file's place."""

    control: Annotated[Control | None, ADDED] = None
    """What to replace: the weights by new ones, or the mask by another one."""
    full: Annotated[bool, ADDED] = False
    """Whether to train for all epochs of the recipe, rather than for what it has left after
    `w^(k)`."""

    @property
    def label(self) -> str:
        return f"{self.command}-{self.control}" if self.control else self.command


COMMANDS: dict[str, type[RunSettings]] = {
    "train": TrainSettings,
    "search": SearchSettings,
    "prune": PruneSettings,
    "retrain": RetrainSettings,
}


def resolve(
    command: str,
    given: Mapping[str, Any],
    *,
    fetch_missing: bool = False,
    load: Callable[..., Task] = load_task,
) -> tuple[RunSettings, Task]:
    """Complete settings, and the task they name, from what a person gave.

    All is checked before the data are loaded. `recipe` holds changes to the task's recipe, or to
    the one of `RECIPES` that its `name` chooses; other epochs scale the rest of it. `load` may be
    a `load_task` that remembers, for those who resolve many settings of the same task.
    """
    schema = COMMANDS[command]
    values = {**given, "command": given.get("command", command)}
    method = _with_name(values, "method")
    if "method" in schema.model_fields:
        own = {name: value for name, value in method.items() if name != "name"}
        values["method"] = MethodSettings(method.get("name", "cs"), own).data
    if "ticket" in values and "ticket" in schema.model_fields:
        ticket = Ticket.load(values["ticket"])
        values.setdefault("task", ticket.manifest.task)
        values["ticket_hash"] = _ticket_hash(ticket, values.get("control"))
    if not values.get("task"):
        raise SettingError(
            "no task is named: give --task, such as --task digits/digits_convnet; prunus tasks "
            "lists what there is"
        )
    changes = _with_name(values, "recipe")
    name = changes.pop("name", None)
    RecipeChanges.parse(changes, within="recipe")
    if name is not None and name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    recipe = None if name is None else RECIPES[name].changed(**changes)
    settings = schema.parse({**values, "recipe": recipe or _NOT_YET_KNOWN})
    code = source_hash(settings.names)  # before the data are read, which takes its time
    task = load(settings.task, settings.data_root, settings.data, fetch_missing=fetch_missing)
    base = schema.base_recipe(task) if name is None else task.fitted(RECIPES[name])
    found: dict[str, Any] = {
        "data_fingerprint": task.data.fingerprint,
        "code_fingerprint": code,
        "recipe": base.changed(**changes),
    }
    if isinstance(settings, _WithMethod) and "select" not in method:
        found["method"] = {
            key: task.select if key == "select" else value for key, value in settings.method.items()
        }
    task.loss_for(found["recipe"])  # raises if the two do not go together
    return settings.model_copy(update=found), task


def complete_rounds(given: dict[str, Any]) -> None:
    """If the rounds of a search are not given: one for each density or rate, where there are
    several.

    And one for a method that has no more to decide.
    """
    method = _with_name(given, "method")
    if "name" in method and find_method(method["name"]).decides_once:
        given.setdefault("rounds", 1)
    for name in ("target_density", "target_macs", "rate"):
        value = method.get(name)
        if isinstance(value, list) or (value is not None and name != "rate"):
            given.setdefault("rounds", len(value) if isinstance(value, list) else 1)


def _slug(name: str) -> str:
    """A name of a task or method, as part of a folder's name."""
    return re.sub(r"[^\w.-]+", "-", name)


def _ticket_hash(ticket: Ticket, control: Control | None) -> str:
    """A hash of what of a ticket determines how it re-trains."""
    task, k = ticket.manifest.task, ticket.manifest.rewind_point
    origin = Manifest(task=task, rewind_point=k, versions={}, created="")
    # Only controls use the weights that the mask removes.
    whole = ticket.whole and control is not None
    return Ticket(ticket.mask, ticket.weights, origin, whole=whole).content_hash


def _with_name(values: Mapping[str, Any], setting: str) -> dict[str, Any]:
    """The settings below `setting`; text alone is a name."""
    value = values.get(setting) or {}
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, Mapping):
        raise SettingError(f"{setting}={value!r:.60} is neither a name nor 'name: value' settings")
    if not isinstance(value.get("name", ""), str):
        raise SettingError(f"{setting}.name={value['name']!r:.60} is not a name")
    return dict(value)
