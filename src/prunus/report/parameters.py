"""Settings of runs as people read them: which ones differ, and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prunus.report.read import RunFolder
from prunus.runs.settings_file import flattened

_ALWAYS_SHOWN = ("mask_init", "target_density")
_CONDITIONS = ("recipe", "data", "data_fingerprint")


def run_parameters(runs: Sequence[RunFolder]) -> dict[Path, dict[str, Any]]:
    """The settings in which the runs of one row differ, for runs outside a sweep."""
    flat = {run.path: determining(run.settings) for run in runs}
    names = dict.fromkeys(name for values in flat.values() for name in values)
    varying = [n for n in names if len({repr(v.get(n)) for v in flat.values()}) > 1]
    shown = dict.fromkeys((*_ALWAYS_SHOWN, *varying))
    return {
        path: {n: own[n] for n in shown if own.get(n) is not None} for path, own in flat.items()
    }


def determining(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that make runs of one row different; those of the method without its name."""
    method = settings.get("method")
    own = {k: v for k, v in method.items() if k != "name"} if isinstance(method, Mapping) else {}
    names = (*_CONDITIONS, "rounds", "rewind_epoch")
    return flattened({**own, **{name: settings[name] for name in names if name in settings}})


def conditions(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a run trained with: `recipe.epochs`, `data.train_images`, ..."""
    return flattened({name: settings[name] for name in _CONDITIONS if name in settings})


def different(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The names under which the two have different values; None is the same as nothing."""
    names = dict.fromkeys((*one, *other))
    return [name for name in names if one.get(name) != other.get(name)]


def telling(all_values: Sequence[Mapping[str, Any]]) -> list[str]:
    """A few names whose values tell all of them apart: one that adds nothing to those before it, as
    the drops of a rate often add nothing to the epochs, is left out."""
    chosen: list[str] = []

    def told_apart(names: Sequence[str]) -> int:
        return len({repr([values.get(name) for name in names]) for values in all_values})

    for name in dict.fromkeys(name for values in all_values for name in values):
        if told_apart([*chosen, name]) > told_apart(chosen):
            chosen.append(name)
    return chosen


def as_text(parameters: Mapping[str, Any]) -> str:
    """`mask_init -0.1, rounds 5`."""
    return ", ".join(f"{name} {_value(value)}" for name, value in parameters.items())


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return " ".join(map(_value, value))
    return str(value)
