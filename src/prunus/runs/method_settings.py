"""The settings of a method, as its class declares them: a new method needs no new settings here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, create_model
from torch import nn

from prunus.methods import Method, Setting, describe_settings, find_method
from prunus.methods.settings import REQUIRED
from prunus.schema import Schema, as_fraction

_GIVEN_BY_THE_RUN = {"steps", "rewind_step", "seed"}


class MethodSettings:
    """A method's name, its own settings, and those of its optimiser."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self.name, self._class = name, find_method(name)
        parsed = _schema(self._class).parse(self._class.complete(settings), within="method")
        self._own: dict[str, Any] = {}
        self.group_options: dict[str, Any] = {}
        for setting in settings_of(self._class):
            place = self.group_options if setting.of_optimiser else self._own
            place[setting.name] = getattr(parsed, setting.name)
        plain = parsed.model_dump(mode="json")
        idle = self._class.without_effect(plain)
        self.data: dict[str, Any] = {
            "name": name,
            **{setting: value for setting, value in plain.items() if setting not in idle},
        }
        """Everything that has an effect, as plain data."""

    def attach(self, model: nn.Module, *, steps: int, rewind_step: int | None, seed: int) -> Method:
        """The method at work on `model`; without a `rewind_step` it cannot rewind.

        `seed` is for methods that draw something.
        """
        settings: dict[str, Any] = {**self._own, "steps": steps, "rewind_step": rewind_step}
        if any(setting.name == "seed" for setting in describe_settings(self._class)):
            settings["seed"] = seed
        if rewind_step is None and "rewind" in settings:
            settings["rewind"] = False
        return self._class(model, **settings)


def settings_of(method: type[Method]) -> list[Setting]:
    """What a person can set for a method; the run itself gives the rest."""
    declared = describe_settings(method)
    return [setting for setting in declared if setting.name not in _GIVEN_BY_THE_RUN]


def determining(method: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a method's `data` that determines a run, and so the name of its folder."""
    settings = settings_of(find_method(method["name"]))
    added = {s.name: s.default for s in settings if s.added}
    others = {s.name: s.default for s in settings if not s.added}
    own = {name: v for name, v in method.items() if name not in added or v != added[name]}
    return {**others, **own}  # settings without an effect count as their defaults


def _schema(method: type[Method]) -> type[Schema]:
    if method not in _SCHEMAS:
        fields: dict[str, Any] = {
            setting.name: (_type(setting), ... if setting.default is REQUIRED else setting.default)
            for setting in settings_of(method)
        }
        name = f"{method.name} settings"
        _SCHEMAS[method] = create_model(name, __base__=_AnyType, **fields)
    return _SCHEMAS[method]


def _type(setting: Setting) -> Any:
    """The type of what a person may write: a fraction to keep may also be `10%`."""
    if not setting.name.startswith("target_"):
        return setting.type
    return Annotated[setting.type, BeforeValidator(as_fraction)]


_SCHEMAS: dict[type[Method], type[Schema]] = {}


class _AnyType(Schema):
    # The library takes module types and predicates as well; settings are text and never those.
    model_config = ConfigDict(arbitrary_types_allowed=True)
