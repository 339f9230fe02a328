"""Grids: every combination of the values of some settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from prunus.errors import SettingError

Combination = dict[str, Any]
"""Dotted setting -> one value."""

_MOST = 10_000
"""Combinations of one grid: a small file may name more than there is memory for."""


def combinations(grid: Mapping[str, Sequence[Any]]) -> Iterator[Combination]:
    """All combinations, the last setting changing fastest.

    `{"a": [1, 2], "b, c": [[3, 4], [5, 6]]}` has four: `b` and `c` go together.
    """
    axes = [_axis(key, values) for key, values in grid.items()]
    count = math.prod(map(len, axes))
    if count > _MOST:
        raise SettingError(
            f"grid: {', '.join(grid)} have {count:,} combinations, and {_MOST:,} is the most: "
            "make several rows of it"
        )
    for parts in product(*axes):
        yield {name: value for part in parts for name, value in part.items()}


def shown(combination: Combination) -> dict[str, Any]:
    """As parameters of a table, where a method's own settings have no prefix."""
    return {path.removeprefix("method."): value for path, value in combination.items()}


def _axis(key: str, values: Sequence[Any]) -> list[Combination]:
    names = [name.strip() for name in key.split(",")]
    if not all(all(name.split(".")) for name in names):
        raise SettingError(f"grid: {key!r} is not the name of a setting, such as method.mask_init")
    if len(names) == 1:
        return [{key: value} for value in values]
    for value in values:
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != len(names):
            raise SettingError(
                f"grid: {key!r} takes lists of {len(names)} values that go together, not {value!r}"
            )
    return [dict(zip(names, value, strict=True)) for value in values]
