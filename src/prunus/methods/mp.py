"""Magnitude pruning in one shot."""

from __future__ import annotations

from prunus.gates import FixedGate
from prunus.masks import Mask
from prunus.methods.common.budgeted import RanksWeights
from prunus.methods.common.families import FixedMaskMethod
from prunus.methods.common.ranking import magnitudes
from prunus.methods.hooks import Evaluate


class MagnitudePruning(RanksWeights[FixedGate], FixedMaskMethod):
    """Train the dense network; then keep the largest weights, `target_density` of them, in one cut.

    They compete in the whole network. The cut is made as the round commits. Further rounds train on
    and keep the mask.
    """

    name = "mp"
    decides_once = True

    def on_commit(self, _: Evaluate | None) -> Mask:
        return Mask(self.keep(magnitudes(self.weights), self.mask(), self.budget))
