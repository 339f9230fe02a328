"""Settings of methods, each declared once: as a typed attribute of the method's class.

    class MagnitudePruning(FixedMaskMethod):
        target_density: float = setting("the fraction to keep", default=0.1, must=DENSITY)

From this come the keyword of the constructor (type checkers know it too), its check, the attribute,
the entry in tickets, the setting of the command line with its help, and the part of a run's hash.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    Any,
    ClassVar,
    Literal,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from prunus.errors import SettingError

T = TypeVar("T")
REQUIRED: Any = inspect.Parameter.empty


def check(condition: bool, message: str) -> None:
    """Raise `SettingError` with `message` unless `condition` holds."""
    if not condition:
        raise SettingError(message)


@dataclass(frozen=True)
class Must:
    """A condition on a value, and the message if it fails, which follows `name=value: `."""

    hold: Callable[[Any], bool]
    says: str

    def check(self, name: str, value: object) -> None:
        """Raise `SettingError` unless the condition holds for `value`."""
        try:
            fulfilled = self.hold(value)
        except TypeError:
            fulfilled = False
        check(fulfilled, f"{name}={value}: {self.says}")


DENSITY = Must(
    lambda value: 0 < value <= 1,
    "the fraction of weights to keep is above 0 and at most 1 (0.1 keeps a tenth)",
)

MACS = Must(
    lambda value: 0 < value <= 1,
    "the fraction of multiply-adds to keep is above 0 and at most 1 (0.1 keeps a tenth)",
)


@dataclass(frozen=True)
class Setting:
    """One setting of a method."""

    name: str
    help: str
    type: Any
    default: Any
    """`REQUIRED` if there is none."""
    of_optimiser: bool = False
    """Whether it is a keyword of `param_groups`, and not of the constructor."""
    added: bool = False
    """Whether a run's hash leaves it out at its default."""

    @property
    def choices(self) -> tuple[object, ...]:
        """The allowed values, if they can be listed."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()


@dataclass(frozen=True)
class Governed:
    """The setting that governs the density of a method without a target density.

    Values have positions: `few` is at 0 and `many` at 1, and the density grows from the one to the
    other and beyond.
    """

    setting: str
    few: float
    """A value that keeps few weights."""
    many: float
    """One that keeps many: a search for a density begins with these two."""
    logarithmic: bool = False
    """Whether equal steps multiply the value, instead of adding to it."""

    def value(self, position: float) -> float:
        """The value there, with four digits, so that people can copy it."""
        if self.logarithmic:
            value = self.few * (self.many / self.few) ** position
        else:
            value = self.few + (self.many - self.few) * position
        return float(f"{value:.4g}")

    def position(self, value: float) -> float:
        """Where a value is."""
        if self.logarithmic:
            return math.log(value / self.few) / math.log(self.many / self.few)
        return (value - self.few) / (self.many - self.few)


@dataclass(frozen=True)
class _Declaration:
    help: str
    default: Any
    must: Must | None
    alias: str | None
    settable: bool
    added: bool


def setting(
    help: str,
    *,
    default: T = REQUIRED,
    must: Must | None = None,
    alias: str | None = None,
    init: bool = True,
    added: bool = False,
) -> T:
    """Declare a setting in the body of a method's class; a plain value there changes its default.

    `must` is its check (None is not checked where it is the default). `alias` is its name for
    people, if the attribute needs another one. With `init=False` it cannot be set, but tickets
    record it. `added=True` is for a setting that a later version adds to a method, with a default
    that changes nothing: at this default a run keeps its folder.
    """
    # Type checkers should see the value, not the declaration.
    return cast(T, _Declaration(help, default, must, alias, init, added))


class _Signature:
    """The constructor's signature, for `help` and `inspect`; made on demand."""

    def __get__(self, _: object, cls: type) -> inspect.Signature:
        model = inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        keywords = [
            inspect.Parameter(d.alias or name, inspect.Parameter.KEYWORD_ONLY, default=d.default)
            for name, d in _declarations(cls).items()
            if d.settable
        ]
        return inspect.Signature([model, *keywords])


@dataclass_transform(kw_only_default=True, field_specifiers=(setting, field))
class Declared:
    """Base of all classes that declare settings. Mixins without `Method` are named before it."""

    __signature__: ClassVar[_Signature] = _Signature()

    def _take_settings(self, given: Mapping[str, Any]) -> None:
        """Check what was given, and set an attribute for each declared setting."""
        inspect.signature(type(self)).bind(None, **given)  # TypeError for what does not fit
        given = self.complete(given)
        choices = {s.name: s.choices for s in describe_settings(type(self))}
        for attribute, declared in _declarations(type(self)).items():
            name = declared.alias or attribute
            value = given.get(name, declared.default)
            if declared.must is not None and not (value is None and declared.default is None):
                declared.must.check(name, value)
            if listed := choices.get(name):
                message = f"{name}={value!r} is not {' or '.join(map(repr, listed))}"
                check(value in listed, message)
            setattr(self, attribute, value)

    @classmethod
    def complete(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """What was given, with what follows from it for a setting that was left out."""
        return given

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that make this run what it is, as plain data."""
        declared = _declarations(type(self))
        return {d.alias or name: _plain(getattr(self, name)) for name, d in declared.items()}


def describe_settings(method: type[Declared]) -> tuple[Setting, ...]:
    """Everything that a person can set for a method, those of the optimiser last."""
    types = get_type_hints(method)
    own = [
        Setting(d.alias or name, d.help, types[name], d.default, added=d.added)
        for name, d in _declarations(method).items()
        if d.settable
    ]
    return (*own, *_of_optimiser(method))


def _of_optimiser(method: Any) -> list[Setting]:
    """The keywords of `param_groups`, whose types are `Annotated[type, help]`."""
    hints = get_type_hints(method.param_groups, include_extras=True)
    described = []
    for name, parameter in inspect.signature(method.param_groups).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            type_, help = (*get_args(hints[name]), "")[:2]
            described.append(Setting(name, help, type_, parameter.default, of_optimiser=True))
    return described


def _declarations(cls: type) -> dict[str, _Declaration]:
    """By attribute, those of base classes first."""
    found: dict[str, _Declaration] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, _Declaration):
                found[name] = value
            elif name in found:
                found[name] = replace(found[name], default=value)
    return found


def _plain(value: Any) -> Any:
    """`value` as plain data for JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
