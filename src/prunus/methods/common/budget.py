"""A density for Continuous Sparsification to end at: the scores are shifted to meet it.

Only the differences between scores are learned, so their common level is free: `s <- s - tau`, with
`tau` the quantile of the scores that leaves the wanted share of the weights above zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from prunus.errors import SettingError
from prunus.gates import SigmoidGate


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

    Equal scores stay together, which may leave fewer above zero.
    """
    scores = _scores(gates)
    removed = len(scores) - _gates_to_keep(gates, scores, density)
    tau = scores.kthvalue(removed).values if removed else scores.min() - _epsilon(scores)
    for gate in gates:
        gate.score.sub_(tau.to(gate.score.device))


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
