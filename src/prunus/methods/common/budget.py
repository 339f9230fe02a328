"""A density for Continuous Sparsification to end at, and scores that need no learning rate.

Only the differences between scores are learned, so their common level is free: `s <- s - tau`, with
`tau` the quantile of the scores that leaves the wanted share of the weights above zero.

Their unit is free as well. Gates depend on `u = beta*s` alone, so a rate of the scores would only
scale `beta`. Scores sum up what `dL/du` was, and `beta` counts in units of their `spread`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from prunus.errors import SettingError
from prunus.gates import SigmoidGate
from prunus.methods.settings import DENSITY, check

_TINY = 1e-30

_UNIT = 1e6
"""Scores count in a unit so small that their gradients add nothing to the norm of all gradients of
a model, by which people clip them. The gates do not depend on it."""


def budgets(target_density: float | Sequence[float] | None) -> list[float]:
    """The density of each round; none if there is no budget."""
    if target_density is None:
        return []
    targets = list(target_density) if isinstance(target_density, Sequence) else [target_density]
    check(bool(targets), "target_density is an empty list: give a density for each round")
    for target in targets:
        DENSITY.check("target_density", target)
    check(
        targets == sorted(targets, reverse=True),
        f"target_density={targets}: a round cannot keep more than the one before it",
    )
    return targets


def check_feasible(gates: Sequence[SigmoidGate], target_density: float) -> None:
    """Raise if one gate may stand for more weights than are to be kept.

    The cut falls between two gates, so it misses the target by half of the largest gate at most.
    """
    total = sum(math.prod(gate.layout.weight) for gate in gates)
    coarsest = max(gate.layout.weights_per_gate for gate in gates)
    if coarsest > max(1, target_density * total):
        raise SettingError(
            f"target_density={target_density:g} is {target_density * total:,.0f} of {total:,} "
            f"weights, but one gate stands for up to {coarsest:,}: choose at least "
            f"{math.ceil(10_000 * coarsest / total) / 10_000}, or a finer granularity"
        )


@torch.no_grad()
def shift_scores(gates: Sequence[SigmoidGate], density: float) -> None:
    """`s <- s - tau`, so that `density` of the weights have a score above zero.

    Equal scores stay together, which may leave fewer above zero. Those of minus infinity stay.
    """
    scores = _scores(gates)
    removed = len(scores) - _gates_to_keep(gates, scores, density)
    lowest = scores.where(scores > -torch.inf, torch.inf).min()
    tau = torch.nextafter(lowest, torch.full_like(lowest, -torch.inf))  # keeps all of them
    if removed:
        tau = torch.maximum(tau, scores.kthvalue(removed).values)
    for gate in gates:
        gate.score.sub_(tau.to(gate.score.device))


@torch.no_grad()
def move_scores(gates: Sequence[SigmoidGate], weight: float) -> bool:
    """`s <- s - weight * dL/du` (in a unit of our own), by the gradients since the last call.

    False if there were none.
    """
    moved = False
    for gate in gates:
        gradient, gate.score.grad = gate.score.grad, None
        if gradient is not None:
            # An overflow in half precision, for which optimisers skip a step, must not stay.
            step = (gradient / gate.temperature).nan_to_num_(0.0, 0.0, 0.0)
            gate.score.sub_(step, alpha=weight * _UNIT)
            moved = True
    return moved


@torch.no_grad()
def spread(gates: Sequence[SigmoidGate]) -> float:
    """The median of the scores above zero: the unit in which scores are measured."""
    scores = _scores(gates)
    above = scores[scores > 0]
    return max(float(above.median()), _TINY) if len(above) else 1.0


@torch.no_grad()
def all_equal(gates: Sequence[SigmoidGate]) -> bool:
    """Whether no score differs from another: nothing has been learned."""
    scores = _scores(gates)
    return bool(scores.min() == scores.max())


@torch.no_grad()
def cut_scores(gates: Sequence[SigmoidGate], density: float) -> None:
    """`shift_scores`, and then exactly `density` of the weights above zero, equal scores or not."""
    shift_scores(gates, density)
    scores = _scores(gates)
    count = _gates_to_keep(gates, scores, density)
    highest = torch.zeros_like(scores, dtype=torch.bool)
    highest[scores.argsort(descending=True, stable=True)[:count]] = True
    parts = highest.split([gate.score.numel() for gate in gates])
    for gate, part in zip(gates, parts, strict=True):
        keep, s = part.view(gate.score.shape).to(gate.score.device), gate.score
        s.copy_(torch.where(keep, s.clamp(min=_epsilon(s)), s.clamp(max=-_epsilon(s))))


def _scores(gates: Sequence[SigmoidGate]) -> Tensor:
    device = gates[0].score.device
    return torch.cat([gate.score.flatten().to(device) for gate in gates])


def _gates_to_keep(gates: Sequence[SigmoidGate], scores: Tensor, density: float) -> int:
    """How many gates of the highest scores come nearest to `density` of all weights."""
    if len({gate.layout.weights_per_gate for gate in gates}) == 1:
        return round(density * len(scores))
    sizes = [torch.full((g.score.numel(),), g.layout.weights_per_gate) for g in gates]
    weights = torch.cat(sizes).to(scores.device)[scores.argsort(descending=True, stable=True)]
    reached = torch.cat([weights.new_zeros(1), weights.cumsum(0)])
    return int((reached - density * weights.sum()).abs().argmin())


def _epsilon(scores: Tensor) -> float:
    return torch.finfo(scores.dtype).eps
