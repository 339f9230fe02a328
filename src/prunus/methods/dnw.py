"""Discovering Neural Wirings, DNW (Wortsman et al.), for sparse networks."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from prunus.gates import TopKGate
from prunus.methods.base import Method
from prunus.methods.checks import check_choice, check_density, check_reachable
from prunus.methods.ranking import keep_highest, magnitudes
from prunus.selection import Candidate, Select


class DiscoveringNeuralWirings(Method):
    """At every step only the largest weights are used, but all of them learn: `dL/dw = g`.

    `target_density` of the weights are used from the first step on: those of largest magnitude in
    each layer, or, with `scope="global"`, in the whole network. A removed weight that grows comes
    back in exchange for another one.
    """

    name = "dnw"
    gates: dict[str, TopKGate]  # type: ignore[assignment]

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        target_density: float = 0.1,
        scope: Literal["layer", "global"] = "layer",
        select: Select = "paper",
        rewind_step: int | None = 0,
        rewind: bool = False,
    ) -> None:
        check_density(target_density)
        check_choice("scope", scope, ("layer", "global"))
        self.target_density = target_density
        self.scope = scope
        super().__init__(model, steps=steps, select=select, rewind_step=rewind_step, rewind=rewind)
        self._choose()

    def make_gate(self, candidate: Candidate) -> TopKGate:
        return TopKGate(candidate.parameter)

    def on_step(self) -> None:
        self._choose()

    def rewind(self) -> None:
        super().rewind()
        self._choose()

    @torch.no_grad()
    def _choose(self) -> None:
        ranks = magnitudes(self.model)
        if self.scope == "global":
            self._use(ranks)
        else:
            for name, rank in ranks.items():
                self._use({name: rank})

    def _use(self, ranks: dict[str, Tensor]) -> None:
        # Counted without asking the device; at least one, because no layer works with none.
        count = max(1, round(self.target_density * sum(rank.numel() for rank in ranks.values())))
        everything = {name: torch.ones_like(rank, dtype=torch.bool) for name, rank in ranks.items()}
        for name, top in keep_highest(ranks, everything, count).items():
            self.gates[name].top.copy_(top)

    def check_gates(self) -> None:
        check_reachable(self.target_density, self.selection)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            **super().settings,
            "target_density": self.target_density,
            "scope": self.scope,
        }
