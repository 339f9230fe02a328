"""Random pruning at initialisation: a control."""

from __future__ import annotations

from prunus.gates import FixedGate
from prunus.masks import Mask
from prunus.methods.common.families import EndsAtDensity, FixedMaskMethod, Scoped, Seeded
from prunus.methods.common.ranking import keep_density, magnitudes


class RandomPruning(Scoped, Seeded, EndsAtDensity[FixedGate], FixedMaskMethod):
    """Keep the fraction `target_density` of the weights, chosen at random before training.

    With `scope="layer"` every layer has that density, with `"global"` the network as a whole. The
    mask follows from `seed` and the shapes of the layers alone, and never changes.
    """

    name = "random"
    decides_once = decides_at_once = True

    def on_attach(self) -> None:
        # Only how many are kept matters here; which ones is drawn next, on the CPU.
        per_layer, ranks = self.scope == "layer", magnitudes(self.weights)
        counted = Mask(keep_density(ranks, None, self.target_density, per_layer=per_layer))
        self.set_mask(counted.shuffled(self.seed) if per_layer else counted.random(self.seed))
