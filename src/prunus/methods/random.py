"""Random pruning at initialisation: a control."""

from __future__ import annotations

from typing import Any, Literal

from torch import nn

from prunus.masks import Mask
from prunus.methods.checks import check_choice, check_density, check_reachable
from prunus.methods.fixed import FixedMaskMethod
from prunus.methods.ranking import keep_density, magnitudes
from prunus.methods.sampling import check_seed
from prunus.selection import Select


class RandomPruning(FixedMaskMethod):
    """Keep the fraction `target_density` of the weights, chosen at random before training.

    With `scope="layer"` every layer has that density, with `"global"` the network as a whole. The
    mask follows from `seed` and the shapes of the layers alone, and never changes.
    """

    name = "random"

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        target_density: float = 0.1,
        scope: Literal["layer", "global"] = "layer",
        seed: int = 0,
        select: Select = "paper",
        rewind_step: int | None = 0,
    ) -> None:
        check_density(target_density)
        check_choice("scope", scope, ("layer", "global"))
        check_seed(seed)
        self.target_density, self.scope, self.seed = target_density, scope, seed
        super().__init__(model, steps=steps, select=select, rewind_step=rewind_step)
        per_layer = scope == "layer"
        # Only how many are kept matters here; which ones is drawn next, on the CPU.
        counted = Mask(
            keep_density(magnitudes(model), self.mask(), target_density, per_layer=per_layer)
        )
        self.set_mask(counted.shuffled(seed) if per_layer else counted.random(seed))

    def check_gates(self) -> None:
        check_reachable(self.target_density, self.selection)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            **super().settings,
            "target_density": self.target_density,
            "scope": self.scope,
            "seed": self.seed,
        }
