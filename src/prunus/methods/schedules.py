"""How a quantity moves over the steps of a round."""

from __future__ import annotations


def cubic(start: float, end: float, progress: float) -> float:
    """From `start` to `end`, fast at first and slowly at last; `progress` is clipped to [0, 1].

    The schedule of gradual magnitude pruning: `end + (start - end) * (1 - progress)^3`.
    """
    left = 1.0 - min(1.0, max(0.0, progress))
    return end + (start - end) * left**3
