"""Ranking weights and cutting the lowest, over a whole network."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


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
