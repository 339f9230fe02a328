"""What methods with a penalty share."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from prunus.methods.checks import check


def check_penalty(penalty: float) -> None:
    """Raise unless `penalty` can be the strength of one."""
    check(
        math.isfinite(penalty) and penalty >= 0,
        f"penalty={penalty}: lambda must be zero or a positive number",
    )


def total(parts: Iterable[Tensor]) -> Tensor:
    """The sum of all elements of all `parts`, which may be on several devices."""
    sums = [part.sum() for part in parts]
    return torch.stack([s.to(sums[0].device) for s in sums]).sum()
