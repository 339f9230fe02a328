"""Ranking weights and cutting the lowest, over a whole network."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from prunus.gates import gated_parameters


def magnitudes(model: nn.Module) -> dict[str, Tensor]:
    """`|w|` of every weight under a gate."""
    return {name: w.detach().abs() for name, (_, w) in gated_parameters(model).items()}


def keep_highest(
    ranks: Mapping[str, Tensor], mask: Mapping[str, Tensor], count: int
) -> dict[str, Tensor]:
    """Of the weights that `mask` keeps, the `count` of highest rank in all tensors together."""
    device = next(iter(ranks.values())).device  # of all the ranks, wherever their weights are
    flat = torch.cat(
        [ranks[n].to(device).masked_fill(~mask[n].to(device), -torch.inf).flatten() for n in ranks]
    )
    kept = torch.zeros(flat.numel(), dtype=torch.bool, device=flat.device)
    kept[flat.topk(count, sorted=False).indices] = True
    parts = kept.split([rank.numel() for rank in ranks.values()])
    return {n: part.view(ranks[n].shape) for n, part in zip(ranks, parts, strict=True)}


def remove_lowest(
    ranks: Mapping[str, Tensor], mask: Mapping[str, Tensor], rate: float
) -> dict[str, Tensor]:
    """What is left of `mask` without the fraction `rate` of its weights that have lowest rank."""
    remaining = sum(int(mask[n].sum()) for n in ranks)
    return keep_highest(ranks, mask, remaining - round(rate * remaining))


def keep_density(
    ranks: Mapping[str, Tensor],
    mask: Mapping[str, Tensor],
    density: float,
    *,
    per_layer: bool = False,
) -> dict[str, Tensor]:
    """The highest ranks until `density` of all weights are kept, of those that `mask` keeps.

    `per_layer` keeps that fraction of each tensor rather than of all together.
    """
    if per_layer:
        return {n: keep_density({n: ranks[n]}, {n: mask[n]}, density)[n] for n in ranks}
    count = round(density * sum(rank.numel() for rank in ranks.values()))
    available = sum(int(mask[n].sum()) for n in ranks)
    return keep_highest(ranks, mask, min(count, available))
