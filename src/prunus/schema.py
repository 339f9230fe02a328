"""Typed settings: immutable, checked when made, and strict about names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from prunus.errors import SettingError
from prunus.lookup import unknown

_UNKNOWN_NAME = {"extra_forbidden", "unexpected_keyword_argument"}


class Schema(BaseModel):
    """Base of all settings: frozen, and a name that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def parse(cls, data: Mapping[str, Any], within: str = "") -> Self:
        """Check `data`; the first thing wrong becomes a `SettingError` that names the setting.

        `within` is where these settings stand in larger ones: `"recipe"`.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            path = [str(part) for part in first["loc"]]
            prefix = [within] if within else []
            if first["type"] in _UNKNOWN_NAME:
                place = ".".join(prefix + path[:-1])
                kind = f"setting below {place!r}" if place else "setting"
                raise unknown(kind, path[-1], _names(cls, path[:-1])) from error
            name = ".".join(prefix + path)
            if first["type"] == "missing":
                raise SettingError(
                    f"the setting {name!r} is missing, and has no default"
                ) from error
            reason = first["msg"].removeprefix("Value error, ")
            given = "" if first["type"] == "value_error" else f"={first['input']!r}"
            raise SettingError(f"{name}{given}: {reason}" if name else reason) from error


def _names(schema: Any, path: Sequence[str]) -> list[str]:
    """The names of the settings at `path` below `schema`."""
    for part in path:
        annotation = schema.model_fields[part].annotation
        schema = next((t for t in (annotation, *get_args(annotation)) if _has_names(t)), None)
    if is_dataclass(schema):
        return [field.name for field in fields(schema)]
    return list(schema.model_fields)


def _has_names(kind: Any) -> bool:
    return is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, BaseModel))
