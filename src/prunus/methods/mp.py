"""Magnitude pruning in one shot."""

from __future__ import annotations

from typing import Any

from torch import nn

from prunus.masks import Mask
from prunus.methods.base import Evaluate
from prunus.methods.checks import check_density, check_reachable
from prunus.methods.fixed import FixedMaskMethod
from prunus.methods.ranking import keep_density, magnitudes
from prunus.selection import Select


class MagnitudePruning(FixedMaskMethod):
    """Train the dense network; then keep the fraction `target_density` of the weights, those of
    largest magnitude in the whole network, all at once. What follows is fine-tuning.

    The cut is made as the round commits. Further rounds train on and keep the mask.
    """

    name = "mp"

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        target_density: float = 0.1,
        select: Select = "paper",
        rewind_step: int | None = 0,
    ) -> None:
        check_density(target_density)
        self.target_density = target_density
        super().__init__(model, steps=steps, select=select, rewind_step=rewind_step)

    def on_commit(self, _: Evaluate | None) -> Mask:
        return Mask(keep_density(magnitudes(self.model), self.mask(), self.target_density))

    def check_gates(self) -> None:
        check_reachable(self.target_density, self.selection)

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "target_density": self.target_density}
