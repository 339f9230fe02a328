"""Where numbers compete for a budget, in the network or in each layer, and what keeping one costs.

The same for the scores of Continuous Sparsification and for what other methods rank weights by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor

from prunus.methods.common.cuts import Cut, Ranked, cost, find_cut
from prunus.methods.common.processes import ALONE, Processes
from prunus.methods.common.schedules import cubic

Scope = Literal["layer", "global"]

_SAMPLE = 1 << 15
"""About so many numbers are enough to balance two budgets, as long as nothing is final."""

_HALVINGS = 30
"""How often the range of a price is halved."""

_ENDLESS = 1e30
"""At this price nothing but multiply-adds matters."""


class Budget(NamedTuple):
    """The fractions to keep: of the weights, of their multiply-adds, or of both."""

    density: float | None = None
    macs: float | None = None

    def towards(self, end: Budget, progress: float) -> Budget:
        """The budget between this and `end`, with the limits that `end` has (see `cubic`)."""
        pairs = zip(self, end, strict=True)
        way = (b if a is None or b is None else cubic(a, b, progress) for a, b in pairs)
        return Budget(*way)


EVERYTHING = Budget(1.0, 1.0)


@dataclass(frozen=True)
class Competition:
    """Decides which numbers of a list of tensors are kept."""

    sizes: Sequence[int]
    """How many weights a number of each tensor stands for."""
    scope: Scope = "global"
    costs: Sequence[float] | None = None
    """Multiply-adds of a weight of each tensor, in any unit."""
    exponent: float = 0.5
    """With a budget of multiply-adds alone, numbers compete by `value / cost**exponent`: magnitudes
    by `w^2` for each multiply-add. With 1, a layer whose weights cost much can lose them all."""
    processes: Processes = ALONE

    def cuts(
        self, values: Sequence[Tensor], budget: Budget, *, final: bool = True
    ) -> Iterator[tuple[list[Ranked], Cut]]:
        """What competes with each other, and the cut through it.

        Two budgets together are met roughly unless it is `final`.
        """
        if self.scope == "layer":
            for tensor, size in zip(values, self.sizes, strict=True):
                yield replace(self, sizes=[size], scope="global")._cut([tensor], budget, final)
        else:
            yield self._cut(values, budget, final)

    def _cut(
        self, values: Sequence[Tensor], budget: Budget, final: bool
    ) -> tuple[list[Ranked], Cut]:
        if budget.macs is None:
            parts = [Ranked(v, size) for v, size in zip(values, self.sizes, strict=True)]
        elif budget.density is None:
            rows = zip(values, self._macs, self._costs, strict=True)
            parts = [Ranked(v, macs, unit=c**self.exponent) for v, macs, c in rows]
        else:
            price = self._price(values, budget, final)
            parts = self._priced(values, price)
        return parts, find_cut(parts, self._amount(parts, budget), self.processes)

    def _amount(self, parts: Sequence[Ranked], budget: Budget) -> float:
        """What may be kept of the parts, in their own weights."""
        numbers = self.processes.sum(np.array([part.values.numel() for part in parts]))
        weights = [part.weight for part in parts]
        if budget.density is None:
            assert budget.macs is not None
            return budget.macs * float(np.dot(numbers, weights))
        if len(set(weights)) == 1:
            return round(budget.density * int(numbers.sum())) * weights[0]
        return budget.density * float(np.dot(numbers, weights))

    # Two budgets: keep where `value > tau + price * cost`

    def _priced(self, values: Sequence[Tensor], price: float) -> list[Ranked]:
        rows = zip(values, self.sizes, self._costs, strict=True)
        return [Ranked(v, size, offset=price * c) for v, size, c in rows]

    def _price(self, values: Sequence[Tensor], budget: Budget, final: bool) -> float:
        """What a multiply-add must cost, in units of the numbers, for both budgets to be met."""
        assert budget.macs is not None
        numbers = self.processes.sum(np.array([v.numel() for v in values]))
        if not final:
            stride = int(numbers.sum()) // _SAMPLE | 1
            values = [v.flatten()[::stride] for v in values]
            numbers = self.processes.sum(np.array([v.numel() for v in values]))
        wanted = budget.macs * float(np.dot(numbers, self._macs))

        def excess(price: float) -> float:
            parts = self._priced(values, price)
            cut = find_cut(parts, self._amount(parts, budget), self.processes)
            return cost(parts, cut, self._macs, self.processes) - wanted

        # The dearer a multiply-add, the fewer are kept. First as far as it takes, then by halves.
        sign = 1.0 if excess(0.0) > 0 else -1.0
        low, high = 0.0, sign * self._largest(values)
        while sign * excess(high) > 0 and abs(high) < _ENDLESS:
            low, high = high, 16 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if sign * excess(middle) > 0 else (low, middle)
        return high

    def _largest(self, values: Sequence[Tensor]) -> float:
        """The size of the largest finite number."""
        finite = [v[v.isfinite()].abs() for v in values]
        here = max((float(v.max()) for v in finite if len(v)), default=0.0)
        return max(self.processes.gather(here)) or 1.0

    @property
    def _costs(self) -> Sequence[float]:
        assert self.costs is not None, "a budget of multiply-adds needs costs"
        return self.costs

    @property
    def _macs(self) -> list[float]:
        """Multiply-adds that a number of each tensor stands for."""
        return [size * c for size, c in zip(self.sizes, self._costs, strict=True)]
