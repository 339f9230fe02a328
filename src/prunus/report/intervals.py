"""How sure a number is: 95 % intervals over seeds, of differences between networks, of one run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

_Z = statistics.NormalDist().inv_cdf(0.975)
_T = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
)  # fmt: skip
"""The 97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom."""


def t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t; beyond the table by Cornish and Fisher's expansion."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    first = (_Z**3 + _Z) / (4 * freedom)
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
    third = (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / (384 * freedom**3)
    return _Z + first + second + third


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % interval, which is infinite where nothing says how large the error is.

    So nothing can be claimed from a number whose error is unknown.
    """

    mean: float
    low: float = -math.inf
    high: float = math.inf

    @property
    def error(self) -> float:
        """The distance to the farther end of the interval."""
        return max(self.high - self.mean, self.mean - self.low)

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval is."""
        return self.low > 0


def over_seeds(values: Sequence[float]) -> Estimate:
    """The mean with Student's t interval; of a single value the error is unknown."""
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return Estimate(mean)
    error = t_quantile(count - 1) * statistics.stdev(values) / math.sqrt(count)
    return Estimate(mean, mean - error, mean + error)


def of_one_run(fraction: float, samples: int) -> Estimate:
    """A fraction of `samples` that was counted once, with Wilson's binomial interval."""
    shrink = 1 + _Z**2 / samples
    centre = (fraction + _Z**2 / (2 * samples)) / shrink
    variance = fraction * (1 - fraction) / samples + _Z**2 / (4 * samples**2)
    error = _Z * math.sqrt(variance) / shrink
    return Estimate(fraction, min(fraction, centre - error), max(fraction, centre + error))


@dataclass(frozen=True)
class Measured:
    """One value of a network, or a number about it, for each seed."""

    values: Mapping[int, float]
    samples: int | None = None
    """Of how many samples each value is a fraction; None if it is not one, or not known."""

    @cached_property
    def estimate(self) -> Estimate:
        """Over seeds; with one seed, the binomial error of that run."""
        values = list(self.values.values())
        if len(values) == 1 and self.samples:
            return of_one_run(values[0], self.samples)
        return over_seeds(values)

    @property
    def mean(self) -> float:
        return self.estimate.mean

    @property
    def count(self) -> int:
        """The number of seeds."""
        return len(self.values)

    def minus(self, other: Measured) -> Estimate:
        """The difference to another network, paired by seed.

        With one seed in common it is that of two fractions, by Newcombe's combination of their
        binomial intervals. It leaves out that both were counted on the same samples, and so is
        rather too wide. Without a common seed, the error is unknown.
        """
        common = [seed for seed in self.values if seed in other.values]
        if not common:
            return Estimate(self.mean - other.mean)
        pairs = [(self.values[seed], other.values[seed]) for seed in common]
        if len(pairs) > 1 or not (self.samples and other.samples):
            return over_seeds([ours - theirs for ours, theirs in pairs])
        [(ours, theirs)] = pairs
        one, two = of_one_run(ours, self.samples), of_one_run(theirs, other.samples)
        below = math.hypot(ours - one.low, two.high - theirs)
        above = math.hypot(one.high - ours, theirs - two.low)
        return Estimate(ours - theirs, ours - theirs - below, ours - theirs + above)
