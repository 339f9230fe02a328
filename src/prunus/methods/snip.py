"""SNIP: pruning before training, by how much the loss would notice (Lee et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from prunus.errors import SearchWarning, warn_caller
from prunus.gates import SalientGate
from prunus.masks import Mask
from prunus.methods.common.families import EndsAtDensity, FixedMaskMethod
from prunus.methods.common.processes import sum_over_processes
from prunus.methods.common.ranking import keep_density
from prunus.methods.settings import Must, setting
from prunus.selection import Candidate


class SNIP(EndsAtDensity[SalientGate], FixedMaskMethod):
    """Keep the weights with the highest `|g * w|` in the network, and train them.

    `g` is the gradient of the loss in the first `batches` steps of the first round, summed before
    the absolute value is taken. Until then the network is dense: with one batch, as in the paper,
    the scores are those of the initial weights, and the weights that are kept have made one step
    together with the others. From then on the mask is final.
    """

    name = "snip"
    decides_once = True

    batches: int = setting(
        "the steps at the beginning of the first round whose gradients are taken",
        default=1,
        must=Must(lambda count: count >= 1, "at least one batch has to be seen"),
    )

    def make_gate(self, candidate: Candidate) -> SalientGate:
        return SalientGate(candidate.parameter)

    def on_attach(self) -> None:
        self._scores: dict[str, Tensor] = {}  # `g * w` so far
        self._listen()

    def on_step(self) -> None:
        if self.round > 1 or self.t > self.batches:
            return
        self._gather()
        if self.t == self.batches:
            self._cut()
        self._listen()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "scores": self._scores}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._scores = state["scores"]
        self._listen()

    def _listen(self) -> None:
        """Let the gates collect gradients if those of the next step count."""
        counts = self.round == 1 and self.t < self.batches
        for name, weight in self.weights.items():
            self.gates[name].listen(weight if counts else None)

    @torch.no_grad()
    def _gather(self) -> None:
        for name, gate in self.gates.items():
            if gate.sensitivity is not None:
                found = sum_over_processes(gate.sensitivity)
                before = self._scores.get(name)
                self._scores[name] = found if before is None else before.to(found.device) + found

    def _cut(self) -> None:
        if not self._scores:
            warn_caller(
                f"no gradient came in the first {self.batches} steps, so nothing is removed: call "
                "step() after backward()",
                SearchWarning,
            )
            return
        # A layer without a gradient was not used.
        ranks = {
            name: self._scores.get(name, torch.zeros_like(weight)).abs()
            for name, weight in self.weights.items()
        }
        self.set_mask(Mask(keep_density(ranks, None, self.target_density)))
        self._scores = {}
