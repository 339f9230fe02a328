"""Gradual magnitude pruning (Zhu and Gupta, 2017)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn

from prunus.masks import Mask
from prunus.methods.base import Evaluate
from prunus.methods.checks import check, check_choice, check_density, check_reachable
from prunus.methods.fixed import FixedMaskMethod
from prunus.methods.ranking import keep_density, magnitudes
from prunus.methods.schedules import cubic
from prunus.selection import Select

CUTS = 100
"""How many there are, about, unless `every` says otherwise."""


class GradualMagnitudePruning(FixedMaskMethod):
    """Remove the smallest weights little by little while training.

    From step `t0 = start * T` to `t1 = end * T` of the first round the density is

        d(t) = target_density + (1 - target_density) * (1 - (t - t0) / (t1 - t0))^3

    with a cut `every` so many steps (None: a hundredth of the way from `t0` to `t1`) and one at
    `t1`. Then the network trains on with its final mask. `scope` is `"global"`, where all weights
    compete, or `"layer"`, where every layer has density `d(t)`.

    As in Zhu and Gupta, removed weights get no gradient and each cut ranks all weights anew, so
    until `t1` a removed weight comes back if it is larger than what a kept one has shrunk to. (Only
    the optimiser's momentum and weight decay still move it.) After `t1` none does. A round that
    ends before `t1` is cut to the target as it commits. Further rounds keep the mask.
    """

    name = "gmp"

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        target_density: float = 0.1,
        start: float = 0.0,
        end: float = 0.75,
        every: int | None = None,
        scope: Literal["global", "layer"] = "global",
        select: Select = "paper",
        rewind_step: int | None = 0,
    ) -> None:
        check_density(target_density)
        check(
            0 <= start < end <= 1,
            f"start={start} and end={end}: pruning goes from one fraction of the round to a later "
            "one, both from 0 to 1",
        )
        check(
            every is None or every >= 1, f"every={every}: there is at least one step between cuts"
        )
        check_choice("scope", scope, ("global", "layer"))
        self.target_density = target_density
        self.start, self.end, self.every, self.scope = start, end, every, scope
        self.first_step = int(start * steps)  # t0
        self.last_step = max(self.first_step + 1, round(end * steps))  # t1
        super().__init__(model, steps=steps, select=select, rewind_step=rewind_step)

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
            self.set_mask(self._cut(cubic(1.0, self.target_density, since / window)))

    def on_commit(self, _: Evaluate | None) -> Mask:
        return self.mask() if self.finished else self._cut(self.target_density)

    def _cut(self, density: float) -> Mask:
        ranks = magnitudes(self.model)
        everything = {name: torch.ones_like(rank, dtype=torch.bool) for name, rank in ranks.items()}
        return Mask(keep_density(ranks, everything, density, per_layer=self.scope == "layer"))

    def check_gates(self) -> None:
        check_reachable(self.target_density, self.selection)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            **super().settings,
            "target_density": self.target_density,
            "start": self.start,
            "end": self.end,
            "every": self.every,
            "scope": self.scope,
        }
