"""Other ways to give Continuous Sparsification a density to end at, to compare with the product's.

Both press the soft density to the target by a term of the loss, and cut what is left over at the
end, because neither ends exactly at the target by itself.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from prunus.masks import Mask
from prunus.methods import ContinuousSparsification, Evaluate
from prunus.methods.budget import cut_scores
from prunus.methods.penalties import total
from prunus.methods.schedules import cubic


class _Pressed(ContinuousSparsification):
    wanted: float
    free_density: float
    """Where the search ended by itself, before the cut."""

    def __init__(self, *arguments: Any, target_density: float, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.wanted = target_density

    def soft_density(self) -> Tensor:
        gates = self.gates.values()
        weights = sum(math.prod(gate.layout.weight) for gate in gates)
        return total(gate.soft_mask() for gate in gates) / weights

    def on_commit(self, evaluate: Evaluate | None) -> Mask:
        self.free_density = self.mask().density
        cut_scores(list(self.gates.values()), self.wanted)
        return super().on_commit(evaluate)

    @property
    def settings(self) -> dict[str, Any]:
        own = {"wanted": self.wanted, "free_density": getattr(self, "free_density", None)}
        return {**super().settings, **own}


class Lagrange(_Pressed):
    """`mu * soft density`, where `mu` rises while the density is above its schedule."""

    rate = 0.1
    mu = 0.0
    excess = 0.0

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

    strength = 1.0

    def penalty(self) -> Tensor:
        if self.hardened:
            return super().penalty()
        difference: Tensor = (self.soft_density() / self.wanted - 1) ** 2
        return self.strength * difference


class WeakLagrange(Lagrange):
    rate = 0.01


class WeakQuadratic(Quadratic):
    strength = 0.01


DESIGNS = {
    "lagrange": Lagrange,
    "lagrange-weak": WeakLagrange,
    "quadratic": Quadratic,
    "quadratic-weak": WeakQuadratic,
}
