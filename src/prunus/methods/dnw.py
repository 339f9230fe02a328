"""Discovering Neural Wirings, DNW (Wortsman et al.), for sparse networks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from prunus.gates import TopKGate
from prunus.methods.common.budgeted import RanksWeights
from prunus.methods.common.families import Rewinding, Scoped
from prunus.methods.common.ranking import keep_highest, magnitudes
from prunus.selection import Candidate


class DiscoveringNeuralWirings(Scoped, Rewinding, RanksWeights[TopKGate]):
    """At every step only the largest weights are used, but all of them learn: `dL/dw = g`.

    `target_density` of the weights are used from the first step on: those of largest magnitude in
    each layer, or, with `scope="global"`, in the whole network. A removed weight that grows comes
    back in exchange for another one. (With a `target_macs`, all are used in the first step.)
    """

    name = "dnw"

    def make_gate(self, candidate: Candidate) -> TopKGate:
        return TopKGate(candidate.parameter)

    def on_attach(self) -> None:
        super().on_attach()
        if not self.counts_macs:  # which are known after the first forward pass
            self._choose()

    def on_step(self) -> None:
        self._choose()

    def rewind(self) -> None:
        super().rewind()
        self._choose()

    @torch.no_grad()
    def _choose(self) -> None:
        ranks = magnitudes(self.weights)
        if self.counts_macs or self.granularity != "weight":
            self._use(self.keep(ranks, None, self.budget))
        elif self.scope == "global":
            self._use(self._largest(ranks))
        else:
            for name, rank in ranks.items():
                self._use(self._largest({name: rank}))

    def _largest(self, ranks: dict[str, Tensor]) -> dict[str, Tensor]:
        # Counted without asking the device; at least one, because no layer works with none.
        weights = sum(rank.numel() for rank in ranks.values())
        return keep_highest(ranks, None, max(1, round((self.target_density or 0) * weights)))

    def _use(self, tops: Mapping[str, Tensor]) -> None:
        for name, top in tops.items():
            self.gates[name].top.copy_(top)
