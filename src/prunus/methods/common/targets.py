"""The budget of each round as people give it, and what cannot be met, before any training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from prunus.gates import Granularity, Layout, parse_pattern
from prunus.methods.common.competition import Budget, Scope
from prunus.methods.settings import DENSITY, MACS, Must, check
from prunus.tables import percent

Fractions = float | Sequence[float] | None
"""A fraction to keep; or one for each round."""


def budgets(
    target_density: Fractions,
    target_macs: Fractions = None,
    scope: Scope = "global",
    granularity: Granularity = "weight",
) -> list[Budget]:
    """The budget of each round; none if there is none. Raises if settings contradict each other."""
    densities = _fractions("target_density", target_density, DENSITY)
    macs = _fractions("target_macs", target_macs, MACS)
    if pattern := parse_pattern(granularity):
        kept, of = pattern
        check(
            densities in ([], [kept / of]) and not macs,
            f"granularity={granularity!r} keeps {kept} of {of} weights everywhere: leave "
            f"target_density and target_macs out",
        )
        densities = [kept / of]
    check(
        scope == "global" or (bool(densities) and not macs),
        f"scope={scope!r} is for a target_density, which every layer then has; a target_macs is "
        "for the whole network (scope='global')",
    )
    if not densities or not macs:
        return [Budget(density=d) for d in densities] or [Budget(macs=m) for m in macs]
    check(
        len(densities) == len(macs),
        f"target_density={densities} and target_macs={macs}: give as many of one as of the other",
    )
    return [Budget(d, m) for d, m in zip(densities, macs, strict=True)]


def as_settings(targets: Sequence[Budget]) -> tuple[Fractions, Fractions]:
    """`target_density` and `target_macs` as people give them."""
    columns = ([t.density for t in targets], [t.macs for t in targets])
    given = [[value for value in column if value is not None] for column in columns]
    density, macs = (column[0] if len(column) == 1 else column or None for column in given)
    return density, macs


def check_targets(
    layouts: Mapping[str, Layout], targets: Sequence[Budget], scope: Scope = "global"
) -> None:
    """Raise if so few weights are to be kept that it comes to none, or to less than one gate."""
    for density in (target.density for target in targets if target.density is not None):
        if scope == "global":
            _check_density(density, list(layouts.values()))
            continue
        for name, layout in layouts.items():
            _check_density(density, [layout], f" of {name}")


def check_affordable(
    layouts: Mapping[str, Layout], targets: Sequence[Budget], costs: Mapping[str, float]
) -> None:
    """Raise if the multiply-adds cannot be met; `costs` are those of a weight of each parameter."""
    weights = {name: math.prod(layout.weight) for name, layout in layouts.items()}
    every = sum(weights[name] * costs[name] for name in layouts)
    for density, macs in targets:
        if macs is None:
            continue
        if density is None:
            free = [name for name in layouts if not costs[name]]
            check(
                not free,
                f"target_macs={macs:g} says nothing about {', '.join(free)}: no multiply-adds were "
                "counted there. Leave them out of select, or give a target_density as well",
            )
            coarsest = max(layouts[n].weights_per_gate * costs[n] for n in layouts) / every
            check(
                coarsest <= macs,
                f"target_macs={macs:g}: one gate stands for up to {coarsest:.2g} of the "
                "multiply-adds; choose at least that, or a finer granularity",
            )
            continue
        least, most = _range_of_macs(density, weights, costs)
        check(
            least <= macs * every <= most,
            f"target_macs={macs:g} with target_density={density:g}: so many weights have from "
            f"{percent(least / every)} to {percent(most / every)} of the multiply-adds; choose "
            "others, or give one of the two",
        )


def check_reachable(density: float, weights: int, where: str = "") -> None:
    """Raise `SettingError` if the density is less than one of so many weights."""
    check(
        round(density * weights) >= 1,
        f"target_density={density:g} of {weights:,} weights{where} is less than one weight: choose "
        f"at least {1 / max(1, weights):.2g}",
    )


def _fractions(name: str, given: Fractions, must: Must) -> list[float]:
    if given is None:
        return []
    if isinstance(given, str):  # a sequence too, but no number
        must.check(name, given)
    targets = list(given) if isinstance(given, Sequence) else [given]
    check(bool(targets), f"{name} is an empty list: give a number for each round")
    for target in targets:
        must.check(name, target)
    check(
        targets == sorted(targets, reverse=True),
        f"{name}={targets}: a round cannot keep more than the one before it",
    )
    return targets


def _check_density(density: float, layouts: Sequence[Layout], where: str = "") -> None:
    weights = sum(math.prod(layout.weight) for layout in layouts)
    check_reachable(density, weights, where)
    # The cut falls between two gates, so it misses the target by half of the largest one at most.
    coarsest = max(layout.weights_per_gate for layout in layouts)
    check(
        coarsest <= max(1, density * weights),
        f"target_density={density:g} is {density * weights:,.0f} of {weights:,} weights{where}, "
        f"but one gate stands for up to {coarsest:,}: choose at least "
        f"{math.ceil(10_000 * coarsest / weights) / 10_000}, or a finer granularity",
    )


def _range_of_macs(
    density: float, weights: Mapping[str, int], costs: Mapping[str, float]
) -> tuple[float, float]:
    """The multiply-adds of so many weights: if they are the cheapest, and if they are not."""

    def filled(order: Sequence[str]) -> float:
        left, macs = density * sum(weights.values()), 0.0
        for name in order:
            taken = min(left, weights[name])
            left, macs = left - taken, macs + taken * costs[name]
        return macs

    cheapest = sorted(weights, key=lambda name: costs[name])
    return filled(cheapest), filled(cheapest[::-1])
