"""How a quantity moves over the steps of a round; `progress` is clipped to [0, 1]."""

from __future__ import annotations

import math


def cubic(start: float, end: float, progress: float) -> float:
    """From `start` to `end`, fast at first and slowly at last.

    The schedule of gradual magnitude pruning: `end + (start - end) * (1 - progress)^3`.
    """
    left = 1.0 - min(1.0, max(0.0, progress))
    return end + (start - end) * left**3


def cosine(start: float, progress: float) -> float:
    """From `start` to zero along half a cosine: `start / 2 * (1 + cos(pi * progress))`."""
    return start / 2 * (1 + math.cos(math.pi * min(1.0, max(0.0, progress))))
