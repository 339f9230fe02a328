"""The settings of a run: from a file and the command line, checked, complete, and written down."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainSerializer

from prunus.errors import SettingError
from prunus.lookup import unknown
from prunus.methods import METHODS
from prunus.schema import Schema
from prunus.search.controls import Control
from prunus.search.method_settings import MethodSettings
from prunus.tasks import RECIPES, Recipe, Task, load_task
from prunus.tasks.data import DataOptions
from prunus.ticket import Manifest, Ticket
from prunus.training.settings import EngineSettings
from prunus.training.trackers import TrackerName

_HASH_LENGTH = 10
Folder = Annotated[Path, PlainSerializer(str)]

# So long that it refuses only what no recipe can have.
_ANY_RECIPE = Recipe(epochs=2**31, batch_size=1)


class RunSettings(Schema):
    """What every command has. The methods say how to get from here to a run's folder."""

    command: str
    task: str
    seed: int = Field(default=0, ge=0)
    recipe: Recipe
    data: DataOptions = DataOptions()
    engine: EngineSettings = EngineSettings()
    checkpoint_every: int | None = Field(default=500, ge=1)
    """Steps between two checkpoints; there is one at the end of each epoch anyway."""
    trackers: tuple[TrackerName, ...] = ()
    data_root: Folder = Path("data")
    data_fingerprint: str = ""
    """What the data themselves add to their name and options; `resolve` finds it out."""
    out: Folder = Path("runs")

    _beside_the_point: ClassVar[set[str]] = {"checkpoint_every", "trackers", "data_root", "out"}
    _only_if_set: ClassVar[set[str]] = set()
    """Settings that count when they are not at their default: runs from before they existed keep
    their folder."""

    @property
    def label(self) -> str:
        """What the run does, for the name of its folder."""
        return self.command

    @property
    def folder(self) -> Path:
        """Where the run lives. The name ends in a hash of all that determines the result."""
        text = json.dumps(self._determining(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
        task = re.sub(r"[^\w.-]+", "-", self.task)
        return self.out / f"{task}-{self.label}-{digest}"

    def _determining(self) -> dict[str, Any]:
        fields = type(self).model_fields
        unset = {name for name in self._only_if_set if getattr(self, name) == fields[name].default}
        content = self.model_dump(mode="json", exclude=self._beside_the_point | unset)
        return {**content, "engine": self.engine.determining()}

    @classmethod
    def base_recipe(cls, task: Task) -> Recipe:
        """The recipe that the settings change."""
        return task.recipe


class TrainSettings(RunSettings):
    """Train the dense network."""

    command: Literal["train"]


class _WithMethod(RunSettings):
    method: dict[str, Any]
    """The method's name, and its own settings."""

    @property
    def label(self) -> str:
        return f"{self.method['name']}-{self.command}"

    def _determining(self) -> dict[str, Any]:
        added = METHODS[self.method["name"]].added_settings
        method = {k: v for k, v in self.method.items() if k not in added or v != added[k]}
        return {**super()._determining(), "method": method}

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
    whole_tickets: bool = False
    """Whether tickets also hold the weights that they remove, for random masks as controls."""

    _only_if_set: ClassVar[set[str]] = {"whole_tickets"}


class PruneSettings(_WithMethod):
    """Search, fix the mask, fine-tune."""

    command: Literal["prune"]
    rewind_epoch: float | None = Field(default=None, ge=0)
    """Also save the ticket with the weights of this epoch, so that the same subnetwork can be both
    fine-tuned and re-trained."""

    _only_if_set: ClassVar[set[str]] = {"rewind_epoch"}

    @classmethod
    def base_recipe(cls, task: Task) -> Recipe:
        return task.pruning_recipe


class RetrainSettings(RunSettings):
    """Train a ticket's subnetwork from its weights `w^(k)`."""

    command: Literal["retrain"]
    ticket: Folder
    ticket_hash: str = ""
    """Of mask, weights, task and rewind point: these determine the result, not the file's place."""

    control: Control | None = None
    """What to replace: the weights by new ones, or the mask by a random one."""

    _beside_the_point: ClassVar[set[str]] = RunSettings._beside_the_point | {"ticket"}
    _only_if_set: ClassVar[set[str]] = {"control"}

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
    if "method" in schema.model_fields:
        method = _with_name(values, "method")
        values["method"] = MethodSettings(method.pop("name", "cs"), method).data
    if "ticket" in values and "ticket" in schema.model_fields:
        ticket = Ticket.load(values["ticket"])
        values.setdefault("task", ticket.manifest.task)
        task_name, k = ticket.manifest.task, ticket.manifest.rewind_point
        origin = Manifest(task=task_name, rewind_point=k, versions={}, created="")
        # Only controls use the weights that the mask removes.
        whole = ticket.whole and values.get("control") is not None
        values["ticket_hash"] = Ticket(
            ticket.mask, ticket.weights, origin, whole=whole
        ).content_hash
    changes = _with_name(values, "recipe")
    name = changes.pop("name", None)
    if name is not None and name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    draft = (_ANY_RECIPE if name is None else RECIPES[name]).changed(**changes)
    settings = schema.parse({**values, "recipe": draft})
    task = load(settings.task, settings.data_root, settings.data, fetch_missing=fetch_missing)
    found: dict[str, Any] = {"data_fingerprint": task.data.fingerprint}
    if name is None:
        found["recipe"] = schema.base_recipe(task).changed(**changes)
    return settings.model_copy(update=found), task


def _with_name(values: Mapping[str, Any], setting: str) -> dict[str, Any]:
    """The settings below `setting`; text alone is a name."""
    value = values.get(setting) or {}
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, Mapping):
        raise SettingError(f"{setting}={value!r} is neither a name nor 'name: value' settings")
    return dict(value)
