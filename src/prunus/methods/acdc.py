"""AC/DC: phases of dense and of sparse training in turn (Peste et al., 2021)."""

from __future__ import annotations

import torch

from prunus.gates import FixedGate
from prunus.masks import Mask
from prunus.methods.common.families import EndsAtDensity, FixedMaskMethod
from prunus.methods.common.ranking import keep_density, magnitudes
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Must, check, setting


class AlternatingCompression(EndsAtDensity[FixedGate], FixedMaskMethod):
    """Train the sparse and the dense network in turn, and end with the sparse one.

    Of a round of `T` steps the first `start * T` are dense. Then phases of `phase * T` steps
    follow: a sparse one, a dense one, and so on; from `end * T` on the network stays sparse. A
    sparse phase begins by keeping the fraction `target_density` of the weights that have the
    largest magnitude in the whole network; a dense one gives back the others, which start at zero.

    A round that ends in a dense phase is cut as it commits. Further rounds keep the mask.
    """

    name = "acdc"
    decides_once = True

    start: float = setting(
        "when the first sparse phase begins, as a fraction of the round", default=0.05
    )
    phase: float = setting(
        "how long a phase is, as a fraction of the round",
        default=0.1,
        must=Must(lambda length: 0 < length <= 1, "a phase is a part of the round"),
    )
    end: float = setting(
        "when the last sparse phase begins, as a fraction of the round", default=0.85
    )

    def prepare(self) -> None:
        check(
            0 <= self.start <= self.end <= 1,
            f"start={self.start} and end={self.end}: the first sparse phase begins at a fraction "
            "of the round, and the last at the same or a later one, both from 0 to 1",
        )

    def is_sparse(self, t: int) -> bool:
        """Whether the network is sparse after step `t` of the first round."""
        progress = t / self.steps
        if progress < self.start:
            return False
        # A phase of a thirtieth, say, begins at its step and not one later for want of precision.
        phases_before = int((progress - self.start) / self.phase + 1e-9)
        return progress >= self.end or phases_before % 2 == 0

    def on_step(self) -> None:
        if self.round > 1 or self.is_sparse(self.t) == self.is_sparse(self.t - 1):
            return
        if self.is_sparse(self.t):
            self.set_mask(self._cut())
        else:
            self._open()

    def on_commit(self, _: Evaluate | None) -> Mask:
        is_final = self.round > 1 or self.is_sparse(self.t)
        return self.mask() if is_final else self._cut()

    def _cut(self) -> Mask:
        return Mask(keep_density(magnitudes(self.weights), None, self.target_density))

    @torch.no_grad()
    def _open(self) -> None:
        for name, weight in self.weights.items():
            mask = self.gates[name].fixed_mask
            weight.masked_fill_(~mask, 0.0)  # weight decay and momentum may have moved them
            mask.fill_(True)
