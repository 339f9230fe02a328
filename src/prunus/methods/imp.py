"""Iterative Magnitude Pruning (algorithm 1 of the paper)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from prunus.gates import FixedGate
from prunus.masks import Mask
from prunus.methods.base import Evaluate, Method, check
from prunus.methods.ranking import keep_highest, magnitudes
from prunus.selection import Candidate, Select


class IterativeMagnitudePruning(Method):
    """Each round: train, remove the fraction `rate` (`tau`) of the remaining weights that have the
    smallest magnitude in the whole network, and rewind the rest to `w^(k)`.

    With `rewind=False` this is the paper's continued form, IMP-C.
    """

    name = "imp"
    gates: dict[str, FixedGate]  # type: ignore[assignment]

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        rate: float = 0.2,
        select: Select = "paper",
        rewind_step: int | None = 0,
        rewind: bool = True,
    ) -> None:
        check(0 < rate < 1, f"rate={rate}: the fraction removed a round is between 0 and 1")
        self.rate = rate
        super().__init__(model, steps=steps, select=select, rewind_step=rewind_step, rewind=rewind)

    def make_gate(self, candidate: Candidate) -> FixedGate:
        return FixedGate(torch.ones_like(candidate.parameter, dtype=torch.bool))

    def on_commit(self, _: Evaluate | None) -> Mask:
        mask = self.mask()
        kept = keep_highest(magnitudes(self.model), mask, mask.kept - round(self.rate * mask.kept))
        for name, gate in self.gates.items():
            gate.fixed_mask.copy_(kept[name])
        return self.mask()

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "rate": self.rate}
