"""A budget for Continuous Sparsification to end at, and scores that need no learning rate.

Only the differences between scores are learned, so their common level is free: `s <- s - tau`, with
`tau` the quantile of the scores that leaves the wanted share of the weights above zero. With other
budgets there are several thresholds: one for each layer, each group of a pattern, or each cost.

Their unit is free as well. Gates depend on `u = beta*s` alone, so a rate of the scores would only
scale `beta`. Scores sum up what `dL/du` was, and `beta` counts in units of their `spread`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import torch
from torch import Tensor

from prunus.gates import SigmoidGate, local
from prunus.methods.common.competition import Budget, Competition
from prunus.methods.common.cuts import Cut, Ranked, cost, find_cut, masks
from prunus.methods.common.patterns import keep_in_groups, threshold_in_groups
from prunus.methods.common.processes import Processes, processes_of

_TINY = 1e-30

_UNIT = 1e6
"""Scores count in a unit so small that their gradients add nothing to the norm of all gradients of
a model, by which people clip them. The gates do not depend on it."""


@torch.no_grad()
def shift_scores(
    gates: Sequence[SigmoidGate], budget: Budget, competition: Competition | None = None
) -> None:
    """`s <- s - tau`, so that scores above zero are within the budget.

    Equal scores stay together, which may leave fewer above zero. Those of minus infinity stay.
    """
    for gate, (tau, _) in zip(gates, _cuts(gates, budget, competition, final=False), strict=True):
        local(gate.score).sub_(tau)


@torch.no_grad()
def move_scores(gates: Sequence[SigmoidGate], weight: float) -> bool:
    """`s <- s - weight * dL/du` (in a unit of our own), by the gradients since the last call.

    False if there were none.
    """
    moved = False
    for gate in gates:
        score = gate.score
        gradient, score.grad = score.grad, None
        if gradient is not None:
            gate.move(gradient, weight * _UNIT)
            moved = True
    return moved


@torch.no_grad()
def spread(gates: Sequence[SigmoidGate]) -> float:
    """The median of the scores above zero: the unit in which scores are measured."""
    scores = [Ranked(local(gate.score)) for gate in gates]
    processes = processes_of([gate.score for gate in gates])
    above = cost(scores, Cut(0.0), [1] * len(scores), processes)
    return max(find_cut(scores, above // 2, processes).tau, _TINY) if above else 1.0


@torch.no_grad()
def nearest(gates: Sequence[SigmoidGate], share: float) -> float:
    """How near to zero scores are: as many as `share` of those above zero are nearer than this."""
    scores = [local(gate.score) for gate in gates]
    processes = processes_of([gate.score for gate in gates])
    above = cost([Ranked(s) for s in scores], Cut(0.0), [1] * len(scores), processes)
    at_zero = 1  # the score that the last shift was by
    return -find_cut([Ranked(-s.abs()) for s in scores], at_zero + share * above, processes).tau


@torch.no_grad()
def all_equal(gates: Sequence[SigmoidGate]) -> bool:
    """Whether no score differs from another: nothing has been learned."""
    found = [local(gate.score).aminmax() for gate in gates if local(gate.score).numel()]
    here = [(float(extremes.min), float(extremes.max)) for extremes in found]
    everywhere = processes_of([gate.score for gate in gates]).gather(here)
    lowest, highest = zip(*chain.from_iterable(everywhere), strict=True)
    return bool(min(lowest) == max(highest))


@torch.no_grad()
def cut_scores(
    gates: Sequence[SigmoidGate], budget: Budget, competition: Competition | None = None
) -> None:
    """`shift_scores`, and then exactly the budget above zero, equal scores or not."""
    for gate, (tau, keep) in zip(gates, _cuts(gates, budget, competition, final=True), strict=True):
        s = local(gate.score).sub_(tau)
        s.copy_(torch.where(keep, s.clamp(min=_epsilon(s)), s.clamp(max=-_epsilon(s))))


def competition_of(gates: Sequence[SigmoidGate], **options: Any) -> Competition:
    """The competition among the scores of these gates."""
    processes = processes_of([gate.score for gate in gates])
    sizes = [gate.layout.weights_per_gate for gate in gates]
    return Competition(sizes, processes=processes, **options)


def _cuts(
    gates: Sequence[SigmoidGate], budget: Budget, competition: Competition | None, *, final: bool
) -> Iterator[tuple[float | Tensor, Any]]:
    """For each gate, the threshold of its scores; if it is `final`, also what is kept."""
    scores = [local(gate.score).detach() for gate in gates]
    if gates[0].layout.pattern is not None:
        for gate, score in zip(gates, scores, strict=True):
            pattern = gate.layout.pattern
            assert pattern is not None and budget.density is not None
            keep = keep_in_groups(score, pattern) if final else None
            yield threshold_in_groups(score, pattern, budget.density), keep
        return
    competition = competition or competition_of(gates)
    for parts, cut in competition.cuts(scores, budget, final=final):
        tau = cut.tau if cut.tau > -math.inf else _below(parts, competition.processes)
        kept = masks(parts, cut, competition.processes) if final else repeat(None)
        for part, keep in zip(parts, kept, strict=False):
            yield part.level(tau), keep


def _below(parts: Sequence[Ranked], processes: Processes) -> float:
    """A key below all others, except those of minus infinity."""
    here = torch.stack([part.lowest() for part in parts]).min()
    lowest = torch.tensor(min(processes.gather(here.item())), dtype=here.dtype)
    return float(torch.nextafter(lowest, torch.full_like(lowest, -torch.inf)))


def _epsilon(scores: Tensor) -> float:
    return torch.finfo(scores.dtype).eps
