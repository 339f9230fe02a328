"""Results of several seeds put together, and the paper's ways to pick a subnetwork from them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class SubnetworkResult(Protocol):
    """What a report needs to know of one re-trained subnetwork, or of the dense network."""

    @property
    def method(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def mask_init(self) -> float | None: ...
    @property
    def density(self) -> float: ...
    @property
    def accuracy(self) -> float: ...
    @property
    def search_accuracy(self) -> float | None: ...
    @property
    def epochs(self) -> int: ...


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(statistics.fmean(values), deviation)

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f}±{100 * self.deviation:.2f}"


@dataclass(frozen=True)
class Group:
    """The same method with the same settings, over all seeds."""

    method: str
    mask_init: float | None
    density: Spread
    search_accuracy: Spread | None
    accuracy: Spread
    epochs: int
    matching: bool
    """No worse on average than the dense network."""


def summarise(results: Sequence[SubnetworkResult]) -> list[Group]:
    """One group for each method and mask init, dense first, the others from dense to sparse."""
    members: dict[tuple[str, float | None], list[SubnetworkResult]] = {}
    for result in results:
        members.setdefault((result.method, result.mask_init), []).append(result)
    baseline = statistics.fmean(r.accuracy for r in results if r.method == "dense")
    groups = [_group(rs, baseline) for rs in members.values()]
    return sorted(groups, key=lambda g: (g.method != "dense", -(g.mask_init or 0.0), g.method))


def sparsest_matching(groups: Sequence[Group], method: str) -> Group | None:
    """The paper's sparsest matching subnetwork of a method, if it found one."""
    matching = [g for g in groups if g.method == method and g.matching]
    return min(matching, key=lambda g: g.density.mean, default=None)


def _group(results: Sequence[SubnetworkResult], baseline: float) -> Group:
    searched = [r.search_accuracy for r in results if r.search_accuracy is not None]
    accuracy = Spread.of([r.accuracy for r in results])
    return Group(
        method=results[0].method,
        mask_init=results[0].mask_init,
        density=Spread.of([r.density for r in results]),
        search_accuracy=Spread.of(searched) if searched else None,
        accuracy=accuracy,
        epochs=results[0].epochs,
        matching=accuracy.mean >= baseline,
    )
