"""Ranking weights and cutting the lowest, in the network, in each layer or in each group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from prunus.gates import Pattern
from prunus.methods.common.competition import Budget, Competition, Scope
from prunus.methods.common.cuts import masks
from prunus.methods.common.patterns import keep_in_groups

Ranks = Mapping[str, Tensor]
Masks = Mapping[str, Tensor]


def magnitudes(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`|w|` of every tensor."""
    return {name: w.detach().abs() for name, w in weights.items()}


def keep_highest(ranks: Ranks, mask: Masks | None, count: int) -> dict[str, Tensor]:
    """The `count` weights of highest rank in all tensors together, of those that `mask` keeps."""
    device = next(iter(ranks.values())).device  # of all the ranks, wherever their weights are
    flat = torch.cat([rank.to(device).flatten() for rank in ranks.values()])
    if mask is not None:
        allowed = torch.cat([mask[n].to(device).flatten() for n in ranks])
        flat = flat.masked_fill(~allowed, -torch.inf)
    highest = torch.zeros(flat.numel(), dtype=torch.bool, device=device)
    highest[flat.topk(count, sorted=False).indices] = True
    parts = highest.split([rank.numel() for rank in ranks.values()])
    return {n: part.view(ranks[n].shape) for n, part in zip(ranks, parts, strict=True)}


def remove_lowest(ranks: Ranks, mask: Masks, rate: float) -> dict[str, Tensor]:
    """What is left of `mask` without the fraction `rate` of its weights that have lowest rank."""
    remaining = sum(int(mask[n].sum()) for n in ranks)
    return keep_highest(ranks, mask, remaining - round(rate * remaining))


def keep_density(
    ranks: Ranks, mask: Masks | None, density: float, *, per_layer: bool = False
) -> dict[str, Tensor]:
    """The highest ranks until `density` of all weights are kept, of those that `mask` keeps.

    `per_layer` keeps that fraction of each tensor rather than of all together.
    """
    if per_layer:
        return {n: keep_density({n: ranks[n]}, mask, density)[n] for n in ranks}
    count = round(density * sum(rank.numel() for rank in ranks.values()))
    if mask is not None:
        count = min(count, sum(int(mask[n].sum()) for n in ranks))
    return keep_highest(ranks, mask, count)


def keep_budget(
    ranks: Ranks,
    mask: Masks | None,
    budget: Budget,
    *,
    scope: Scope,
    patterns: Mapping[str, Pattern],
    costs: Mapping[str, float],
) -> dict[str, Tensor]:
    """The highest ranks within `budget`, of those that `mask` keeps.

    `patterns` are for every parameter or for none; `costs` are needed for multiply-adds only.
    """
    if budget.macs is None and not patterns:
        assert budget.density is not None
        return keep_density(ranks, mask, budget.density, per_layer=scope == "layer")
    if mask is not None:
        allowed = {name: mask[name].to(rank.device) for name, rank in ranks.items()}
        ranks = {name: rank.where(allowed[name], -torch.inf) for name, rank in ranks.items()}
    if patterns:
        assert budget.density is not None
        return {n: _keep_pattern(rank, patterns[n], budget.density) for n, rank in ranks.items()}
    competition = Competition([1] * len(ranks), costs=[costs[name] for name in ranks])
    [(parts, cut)] = competition.cuts(list(ranks.values()), budget)
    return dict(zip(ranks, masks(parts, cut), strict=True))


def _keep_pattern(rank: Tensor, pattern: Pattern, density: float) -> Tensor:
    """On the way to the pattern, more of each group than it will be."""
    kept = max(pattern.kept, round(density * pattern.of))
    return keep_in_groups(rank, replace(pattern, kept=kept)) & (rank > -torch.inf)
