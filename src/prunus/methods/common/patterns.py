"""N:M patterns: of each `M` neighbouring weights along the inputs, `N` are kept."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from prunus.gates import Pattern


def keep_in_groups(ranks: Tensor, pattern: Pattern) -> Tensor:
    """The mask of the `N` highest ranks in each group; of equal ones, the first."""
    groups = pattern.groups(ranks)
    first = groups.argsort(dim=-1, descending=True, stable=True)[..., : pattern.kept]
    return pattern.ungroup(torch.zeros_like(groups, dtype=torch.bool).scatter_(-1, first, True))


def threshold_in_groups(scores: Tensor, pattern: Pattern, density: float) -> Tensor:
    """In each group, a threshold that leaves `density` of it above, for all of its weights.

    Groups are so small that few densities are possible. For those between, the threshold is
    between two scores, so that it moves with the density and does not jump.
    """
    groups = pattern.groups(scores)
    finite = groups.masked_fill(groups == -torch.inf, torch.inf)
    lowest = finite.amin(dim=-1, keepdim=True)
    below = torch.nextafter(lowest, torch.full_like(lowest, -torch.inf))
    ascending = groups.sort(dim=-1).values
    removed = round((1 - density) * pattern.of, 6)
    whole = math.floor(removed)
    # The highest score that is removed, and the lowest that is not. Where none is removed, as far
    # below the lowest as the next is above it.
    lower = 2 * ascending[..., :1] - ascending[..., 1:2]
    if whole:
        lower = ascending[..., whole - 1 : whole]
    tau = lower
    if removed > whole:
        tau = torch.lerp(lower, ascending[..., whole : whole + 1], removed - whole)
    tau = torch.where(tau.isfinite(), tau, below)
    return pattern.ungroup(tau.expand(groups.shape))
