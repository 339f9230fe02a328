"""Other ways to make Continuous Sparsification end at a density, to compare with `target_density`.

Both press the soft density to the target by a term of the loss, and cut the rest at the end:
neither of them ends exactly at the target by itself.
"""

from __future__ import annotations

import math

from torch import Tensor

from prunus import ContinuousSparsification
from prunus.masks import Mask
from prunus.methods import Evaluate
from prunus.methods.common.budget import cut_scores
from prunus.methods.common.competition import Budget
from prunus.methods.common.families import total
from prunus.methods.common.schedules import cubic
from prunus.methods.settings import check, setting


class _Pressed(ContinuousSparsification):
    """CS without a moving threshold, cut to `target_density` when its round ends."""

    scores = "optimiser"
    free_density: float | None = setting(
        "where the search ended by itself, before the cut", default=None, init=False
    )

    def prepare(self) -> None:
        super().prepare()
        check(len(self.targets) == 1, f"target_density={self.target_density}: give one density")
        (target,) = self.targets
        assert target.density is not None
        self.wanted = target.density
        self.targets = []

    def soft_density(self) -> Tensor:
        gates = self.gates.values()
        weights = sum(math.prod(gate.layout.weight) for gate in gates)
        return total(gate.soft_mask() for gate in gates) / weights

    def on_commit(self, evaluate: Evaluate | None) -> Mask:
        self.free_density = self.mask().density
        cut_scores(list(self.gates.values()), Budget(self.wanted))
        return super().on_commit(evaluate)


class Lagrange(_Pressed):
    """`mu * soft density`, where `mu` rises by `rate` while the density is above its schedule."""

    rate: float = setting("how fast `mu` follows the excess of density", default=0.1)

    def on_attach(self) -> None:
        super().on_attach()
        self.mu = self.excess = 0.0

    def penalty(self) -> Tensor:
        if self.hardened:
            return super().penalty()
        density = self.soft_density()
        wanted = cubic(0.5, self.wanted, self.t / (0.8 * self.steps))
        self.excess = float(density.detach()) / wanted - 1
        return self.mu * density

    def on_step(self) -> None:
        super().on_step()
        self.mu = max(0.0, self.mu + self.rate * self.excess)


class Quadratic(_Pressed):
    """`strength * (soft density / target - 1)^2`."""

    strength: float = setting("weight of the term in the loss", default=1.0)

    def penalty(self) -> Tensor:
        if self.hardened:
            return super().penalty()
        difference: Tensor = (self.soft_density() / self.wanted - 1) ** 2
        return self.strength * difference
