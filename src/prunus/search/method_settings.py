"""The settings of a method, read off its signature: a new method needs no new settings here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

from pydantic import ConfigDict, create_model
from torch import nn

from prunus.lookup import unknown
from prunus.methods import METHODS, Method
from prunus.schema import Schema

_GIVEN_BY_THE_RUN = {"self", "model", "steps", "rewind_step", "seed", "lr"}


class MethodSettings:
    """A method's name, its own arguments, and the keywords of its `param_groups`."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
        self.name = name
        made, grouped = _arguments(METHODS[name].__init__), _arguments(METHODS[name].param_groups)
        parsed = _schema(name).parse(settings, within="method")
        values = {key: getattr(parsed, key) for key in type(parsed).model_fields}
        self._arguments = {key: value for key, value in values.items() if key in made}
        self.group_options = {key: value for key, value in values.items() if key in grouped}
        self.data: dict[str, Any] = {"name": name, **parsed.model_dump(mode="json")}
        """Everything, as plain data."""

    def attach(self, model: nn.Module, *, steps: int, rewind_step: int | None, seed: int) -> Method:
        """The method at work on `model`; without a `rewind_step` it cannot rewind.

        `seed` is for methods that draw something.
        """
        kwargs: dict[str, Any] = {**self._arguments, "steps": steps, "rewind_step": rewind_step}
        if "seed" in inspect.signature(METHODS[self.name].__init__).parameters:
            kwargs["seed"] = seed
        if rewind_step is None and "rewind" in kwargs:
            kwargs["rewind"] = False
        return METHODS[self.name](model, **kwargs)


@cache
def _schema(name: str) -> type[Schema]:
    method = METHODS[name]
    fields: dict[str, Any] = _arguments(method.__init__) | _arguments(method.param_groups)
    schema: type[Schema] = create_model(f"{name} settings", __base__=_AnyType, **fields)
    return schema


class _AnyType(Schema):
    # The library takes module types and predicates as well; settings are text and never those.
    model_config = ConfigDict(arbitrary_types_allowed=True)


def _arguments(function: Any) -> dict[str, tuple[Any, Any]]:
    """Type and default of each keyword that is for a person to set."""
    types = get_type_hints(function)
    return {
        name: (types[name], ... if p.default is p.empty else p.default)
        for name, p in inspect.signature(function).parameters.items()
        if p.kind is not p.VAR_KEYWORD and name not in _GIVEN_BY_THE_RUN
    }
