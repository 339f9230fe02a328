"""Discovering Neural Wirings, DNW (Wortsman et al.), for sparse networks."""

from __future__ import annotations

import torch
from torch import Tensor

from prunus.gates import TopKGate
from prunus.methods.common.families import EndsAtDensity, Rewinding, Scoped
from prunus.methods.common.ranking import keep_highest, magnitudes
from prunus.selection import Candidate


class DiscoveringNeuralWirings(Scoped, Rewinding, EndsAtDensity[TopKGate]):
    """At every step only the largest weights are used, but all of them learn: `dL/dw = g`.

    `target_density` of the weights are used from the first step on: those of largest magnitude in
    each layer, or, with `scope="global"`, in the whole network. A removed weight that grows comes
    back in exchange for another one.
    """

    name = "dnw"

    def make_gate(self, candidate: Candidate) -> TopKGate:
        return TopKGate(candidate.parameter)

    def on_attach(self) -> None:
        self._choose()

    def on_step(self) -> None:
        self._choose()

    def rewind(self) -> None:
        super().rewind()
        self._choose()

    @torch.no_grad()
    def _choose(self) -> None:
        ranks = magnitudes(self.weights)
        if self.scope == "global":
            self._use(ranks)
        else:
            for name, rank in ranks.items():
                self._use({name: rank})

    def _use(self, ranks: dict[str, Tensor]) -> None:
        # Counted without asking the device; at least one, because no layer works with none.
        count = max(1, round(self.target_density * sum(rank.numel() for rank in ranks.values())))
        for name, top in keep_highest(ranks, None, count).items():
            self.gates[name].top.copy_(top)
