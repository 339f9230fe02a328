"""Typed settings: immutable, checked on creation, and strict about names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Self, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from prunus.errors import SettingError
from prunus.lookup import unknown

_UNKNOWN_NAME = {"extra_forbidden", "unexpected_keyword_argument"}

_IN_YAML = {
    "tuple_type": "this has to be a list",
    "list_type": "this has to be a list",
    "dict_type": "this has to be 'name: value' settings",
    "model_type": "this has to be 'name: value' settings",
}
"""Type of an error -> its reason."""

NO_EFFECT = "changes no result"
"""Marks a field (in `Annotated`) that is not part of `Schema.identity`."""
ADDED = "part of the identity unless at its default"
"""Marks a field that a later version added, so that older data keep their identity."""


class Schema(BaseModel):
    """Base of all settings: frozen, and an unknown name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def parse(cls, data: Mapping[str, Any], within: str = "") -> Self:
        """Check `data`; the first problem becomes a `SettingError` that names the setting.

        `within` is the place of these settings in larger ones, such as `"recipe"`.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise _explain(cls, error.errors(), within) from error

    def identity(self) -> dict[str, Any]:
        """What distinguishes these settings from others, as plain data for a hash."""
        plain = self.model_dump(mode="json")
        content: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            is_default = ADDED in field.metadata and value == field.default
            if NO_EFFECT not in field.metadata and not is_default:
                content[name] = value.identity() if isinstance(value, Schema) else plain[name]
        return content


def as_fraction(value: Any) -> Any:
    """`10%` as 0.1, also in a list. Anything else stays what it is, to be checked."""
    if isinstance(value, list | tuple):
        return [as_fraction(part) for part in value]
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return float(value.strip().removesuffix("%")) / 100
        except ValueError:
            raise SettingError(f"{value!r} is not a percentage, such as 10% or 0.5%") from None
    return value


def _explain(schema: type[Schema], errors: Sequence[ErrorDetails], within: str) -> SettingError:
    first = errors[0]
    if first["type"] == "missing":  # probably because of a name beside it that is misspelt
        beside = (e for e in errors if e["type"] in _UNKNOWN_NAME)
        first = next((e for e in beside if e["loc"][:-1] == first["loc"][:-1]), first)
    prefix = [within] if within else []
    if first["type"] in _UNKNOWN_NAME:
        *above, name = map(str, first["loc"])
        place = ".".join(prefix + above)
        kind = f"setting below {place!r}" if place else "setting"
        return unknown(kind, name, _names(_below(schema, above)))
    path = _path(schema, first["loc"])
    name = ".".join(prefix + path)
    if first["type"] == "missing":
        return SettingError(f"the setting {name!r} is missing; it has no default")
    # If several types are allowed, there is an error for each.
    same = [_reason(e) for e in errors if _path(schema, e["loc"]) == path]
    reason = "; or: ".join(dict.fromkeys(same))
    given = "" if first["type"] == "value_error" else f"={first['input']!r:.200}"
    return SettingError(f"{name}{given}: {reason}" if name else reason)


def _reason(error: ErrorDetails) -> str:
    """In words of YAML, which has no tuples and dictionaries."""
    kind = error["type"]
    if kind == "too_short" and error["ctx"]["min_length"] == 1:
        return "there has to be at least 1 item"
    return _IN_YAML.get(kind, error["msg"].removeprefix("Value error, "))


def _path(schema: Any, location: Sequence[int | str]) -> list[str]:
    """The names of settings in pydantic's location; for unions, that ends with names of types."""
    path: list[str] = []
    for part in location:
        if isinstance(part, str):
            if part not in _names(schema):
                break
            schema = _below(schema, [part])
        path.append(str(part))
    return path


def _below(schema: Any, path: Sequence[str]) -> Any:
    """The settings at `path`, or None if there are plain values. Indices of lists are skipped."""
    for part in path:
        if part.isdigit():
            continue
        annotation = get_type_hints(schema)[part]
        schema = next((t for t in (annotation, *get_args(annotation)) if _names(t)), None)
    return schema


def _names(schema: Any) -> list[str]:
    if is_dataclass(schema):
        return [field.name for field in fields(schema)]
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return list(schema.model_fields)
    return []
