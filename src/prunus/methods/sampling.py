"""What methods that draw masks share."""

from __future__ import annotations

import torch

from prunus.methods.checks import check


def check_seed(seed: int) -> None:
    """Raise unless `seed` is one that `sampler` takes."""
    check(0 <= seed < 2**32, f"seed={seed} is not between 0 and 2^32 - 1")


def sampler(seed: int, round_number: int) -> torch.Generator:
    """Chance when a round commits: on the CPU, so that every process and device draws the same."""
    return torch.Generator().manual_seed(seed * 2**20 + round_number)
