"""Checks of settings, with errors for people; done before a method touches a model."""

from __future__ import annotations

from collections.abc import Sequence

from prunus.errors import SettingError
from prunus.selection import Selection


def check(condition: bool, message: str) -> None:
    """Raise `SettingError` with `message` unless `condition` holds."""
    if not condition:
        raise SettingError(message)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise `SettingError` unless the setting's value is one of `choices`."""
    check(value in choices, f"{name}={value!r} is not {' or '.join(map(repr, choices))}")


def check_density(target_density: float) -> None:
    """Raise `SettingError` unless it is a density that a mask can have."""
    check(
        isinstance(target_density, int | float) and 0 < target_density <= 1,
        f"target_density={target_density}: the fraction of weights to keep is above 0 and at most "
        "1 (0.1 keeps a tenth)",
    )


def check_reachable(target_density: float, selection: Selection) -> None:
    """Raise `SettingError` if the density is less than one of the selected weights."""
    total = sum(candidate.parameter.numel() for candidate in selection)
    check(
        round(target_density * total) >= 1,
        f"target_density={target_density:g} of {total:,} weights is less than one weight: choose "
        f"at least {1 / max(1, total):.2g}",
    )
