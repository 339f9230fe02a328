"""What may be compared: subnetworks of one task with the dense network that is their measure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prunus.report.curves import Point
from prunus.report.lines import Line, lines
from prunus.report.parameters import as_text, different, telling
from prunus.report.runs import Record
from prunus.report.selection import RULES, select
from prunus.report.summary import Spread


@dataclass(frozen=True)
class Comparison:
    """One dense network, in all its seeds, and what is compared with it."""

    title: str
    """The task, and the settings too where there is more than one dense network of it."""
    dense: Spread | None
    dense_seeds: int
    lines: Sequence[Line]

    @property
    def picks(self) -> list[tuple[str, Line, Point | None]]:
        """What each rule picks from each line, rule by rule."""
        dense = self.dense.mean if self.dense else None
        found = [(line, select(line, dense)) for line in self.lines]
        return [(rule, line, chosen[rule]) for rule in RULES for line, chosen in found]


_Key = tuple[str, str]


def comparisons(records: Sequence[Record]) -> list[Comparison]:
    """Dense networks with different recipes or data are never averaged.

    A subnetwork belongs to the dense network that was trained on the same data, with the recipe
    that differs least from the one of its own training. If there is none, it waits for one.
    """
    dense: dict[_Key, dict[int, Record]] = {}
    for record in records:
        if record.command == "train" and record.accuracy("trained") is not None:
            dense.setdefault(_key(record.task, record.conditions), {})[record.seed] = record
    members: dict[_Key, list[Record]] = {}
    about = {key: next(iter(group.values())).conditions for key, group in dense.items()}
    for record in records:
        if record.command == "train":
            continue
        near = {
            key: different(about[key], record.conditions) for key in dense if key[0] == record.task
        }
        near = {key: names for key, names in near.items() if not any(map(_of_data, names))}
        key = min(near, key=lambda k: len(near[k])) if near else _alone(record)
        members.setdefault(key, []).append(record)
        about.setdefault(key, {n: v for n, v in record.conditions.items() if _of_data(n)})
    tasks = list(dict.fromkeys(record.task for record in records))
    keys = sorted(about, key=lambda key: tasks.index(key[0]))
    return [
        Comparison(_title(key, about), *_dense(dense.get(key, {})), lines(members.get(key, [])))
        for key in keys
    ]


def _key(task: str, conditions: Mapping[str, Any]) -> _Key:
    return task, json.dumps(conditions, sort_keys=True, default=str)


def _alone(record: Record) -> _Key:
    data = {n: v for n, v in record.conditions.items() if _of_data(n)}
    return _key(record.task, {**data, "dense": None})


def _of_data(name: str) -> bool:
    return name.startswith("data")


def _title(key: _Key, about: Mapping[_Key, Mapping[str, Any]]) -> str:
    names = telling([values for other, values in about.items() if other[0] == key[0]])
    values = {name.removeprefix("recipe."): about[key].get(name) for name in names}
    shown = {name: value for name, value in values.items() if value is not None}
    return ", ".join(filter(None, [key[0], as_text(shown)]))


def _dense(group: Mapping[int, Record]) -> tuple[Spread | None, int]:
    found = [record.accuracy("trained") for record in group.values()]
    values = [value for value in found if value is not None]
    return (Spread.of(values) if values else None), len(values)
