"""Feather: straight-through training with a threshold between soft and hard (2023).

Glentis Georgoulakis, Retsinas and Maragos, with their global magnitude threshold (Feather-Global).
"""

from __future__ import annotations

import torch

from prunus.gates import FeatherGate
from prunus.masks import Mask
from prunus.methods.common.families import EndsAtDensity, Rewinding
from prunus.methods.common.ranking import keep_density, magnitudes
from prunus.methods.common.schedules import cubic
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Must, check, setting
from prunus.selection import Candidate

SPARSE = 0.05
"""Below this density the authors halve the gradients of removed weights."""


class Feather(Rewinding, EndsAtDensity[FeatherGate]):
    """Only the largest weights of the network are used, but all of them learn.

    A weight counts as `sign(w) * (|w|^3 - tau^3)^(1/3)`, or as zero below the threshold `tau`; its
    gradient is `g`, and `theta * g` below `tau`. After every step `tau` is chosen so that the
    network has the density of the moment, which falls from 1 to `target_density` between the
    steps `start * T` and `end * T` as in gradual magnitude pruning. Removed weights that grow come
    back, also after that. Further rounds stay at the target.
    """

    name = "feather"

    theta: float | None = setting(
        "factor on the gradients of removed weights (None: 1, and 0.5 below a density of 5 %)",
        default=None,
        must=Must(lambda theta: 0 <= theta <= 1, "the factor is from 0 to 1"),
    )
    start: float = setting("when the density begins to fall, a fraction of the round", default=0.0)
    end: float = setting("when it reaches the target, as a fraction of the round", default=0.5)

    def prepare(self) -> None:
        check(
            0 <= self.start < self.end <= 1,
            f"start={self.start} and end={self.end}: the density falls from one fraction of the "
            "round to a later one, both from 0 to 1",
        )

    def make_gate(self, candidate: Candidate) -> FeatherGate:
        automatic = 0.5 if self.target_density < SPARSE else 1.0
        return FeatherGate(candidate.parameter, automatic if self.theta is None else self.theta)

    def on_step(self) -> None:
        if self.round > 1:
            self._choose(self.target_density)
        else:
            progress = (self.t / self.steps - self.start) / (self.end - self.start)
            self._choose(cubic(1.0, self.target_density, progress))

    def on_commit(self, evaluate: Evaluate | None) -> Mask:
        self._choose(self.target_density)
        return super().on_commit(evaluate)

    @torch.no_grad()
    def _choose(self, density: float) -> None:
        ranks = magnitudes(self.weights)
        kept = keep_density(ranks, None, density)
        highest = [ranks[name][~mask].max().cpu() for name, mask in kept.items() if not mask.all()]
        threshold = torch.stack(highest).max() if highest else torch.zeros(())
        for name, gate in self.gates.items():
            gate.choose(kept[name], threshold)
