"""Parameter groups as people give them to optimisers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor

from prunus.methods.settings import check

Member = Tensor | tuple[str, Tensor]
"""A parameter, or its name with it."""
Groups = Iterable[Member] | Iterable[Mapping[str, Any]]
"""Parameters, or dicts with `"params"` and options."""


def without(own: Collection[int], groups: Groups) -> Iterator[dict[str, Any]]:
    """`groups` as dicts with lists, less the parameters whose ids are in `own`."""
    given: list[Any] = [groups] if isinstance(groups, Tensor) else list(groups)
    if given and not isinstance(given[0], Mapping):
        given = [{"params": given}]
    for group in given:
        params = group["params"]
        members = [params] if isinstance(params, Tensor) else list(params)
        for member in members:
            _check(member)
        yield {**group, "params": [m for m in members if id(_tensor(m)) not in own]}


def _tensor(member: Member) -> Tensor:
    return member if isinstance(member, Tensor) else member[1]


def _check(member: Member) -> None:
    name = "" if isinstance(member, Tensor) else f" {member[0]}"
    shape = tuple(_tensor(member).shape)
    check(
        _tensor(member).is_leaf,
        f"a group holds a weight{name} of shape {shape} as the network computes with it, behind "
        "its gate: make groups before attaching, or from model.named_parameters()",
    )
