"""Gradual magnitude pruning (Zhu and Gupta, 2017)."""

from __future__ import annotations

from prunus.gates import FixedGate
from prunus.masks import Mask
from prunus.methods.common.budgeted import RanksWeights
from prunus.methods.common.competition import EVERYTHING, Budget, Scope
from prunus.methods.common.families import FixedMaskMethod, Scoped
from prunus.methods.common.ranking import magnitudes
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Must, check, setting

CUTS = 100
"""About how many cuts there are, unless `every` says otherwise."""


class GradualMagnitudePruning(Scoped, RanksWeights[FixedGate], FixedMaskMethod):
    """Remove the smallest weights little by little while training.

    From step `t0 = start * T` to `t1 = end * T` of the first round the density is

        d(t) = target_density + (1 - target_density) * (1 - (t - t0) / (t1 - t0))^3

    with a cut after each `every` steps and a last one at `t1`. From then on the mask is final and
    only the weights train. `scope` is `"global"`, where all weights compete, or `"layer"`, where
    every layer has density `d(t)`.

    As in Zhu and Gupta, removed weights get no gradient and each cut ranks all weights anew, so
    until `t1` a removed weight comes back if a kept one has shrunk below it. (Only the optimiser's
    momentum and weight decay still move it.) After `t1` none does. A round that
    ends before `t1` is cut to the target as it commits. Further rounds keep the mask.
    """

    name = "gmp"
    decides_once = True

    start: float = setting("`t0`, as a fraction of the round: when pruning begins", default=0.0)
    end: float = setting("`t1`, as a fraction of the round: when the mask is final", default=0.75)
    every: int | None = setting(
        "steps between two cuts (None: a hundredth of the way from `t0` to `t1`)",
        default=None,
        must=Must(lambda steps: steps >= 1, "there is at least one step between cuts"),
    )
    scope: Scope = "global"

    def prepare(self) -> None:
        check(
            0 <= self.start < self.end <= 1,
            f"start={self.start} and end={self.end}: pruning goes from one fraction of the round "
            "to a later one, both from 0 to 1",
        )
        self.first_step = int(self.start * self.steps)  # t0
        self.last_step = max(self.first_step + 1, round(self.end * self.steps))  # t1

    @property
    def finished(self) -> bool:
        """Whether the mask is final."""
        return self.round > 1 or self.t >= self.last_step

    def on_step(self) -> None:
        since, window = self.t - self.first_step, self.last_step - self.first_step
        every = self.every or max(1, round(window / CUTS))
        if self.round > 1 or not 0 < since <= window:
            return
        if since % every == 0 or since == window:
            self.set_mask(self._cut(EVERYTHING.towards(self.budget, since / window)))

    def on_commit(self, _: Evaluate | None) -> Mask:
        return self.mask() if self.finished else self._cut(self.budget)

    def _cut(self, budget: Budget) -> Mask:
        return Mask(self.keep(magnitudes(self.weights), None, budget))
