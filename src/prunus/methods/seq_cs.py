"""Sequential Continuous Sparsification (appendix G of the paper)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from prunus.gates import SigmoidGate
from prunus.masks import Mask
from prunus.methods.base import Evaluate
from prunus.methods.checks import check
from prunus.methods.cs import ContinuousSparsification
from prunus.methods.ranking import remove_lowest
from prunus.selection import Select


class SequentialGate(SigmoidGate):
    """The gate of CS, but only a score of minus infinity stands for a removed weight.

    There `sigmoid(beta*s)` and its gradients by score and weight are exactly zero at any
    temperature, in the loss and in the penalty, so no optimiser moves the score.
    """

    def decide(self) -> Tensor:
        return (self.score > -torch.inf).reshape(self.layout.weight)


class SequentialSparsification(ContinuousSparsification):
    """Continuous Sparsification that removes a fixed fraction of the weights in each round.

    A round is one of CS with `s0 = 0`. As it commits, the fraction `rate` of the remaining weights
    that have the lowest scores leaves for good (`s <- -inf`); the others are kept even if their
    score is negative. Then `s <- min(beta_T * s_T, s0)` for those and `beta <- 1`, as in CS: what
    the round has suppressed starts the next one suppressed, and so is first in line to leave.

    The binary mask is "not removed so far". Within a round it is therefore the mask of the round
    before, while the gates are soft; and under it a kept weight counts in full, whatever its score.
    """

    name = "seq-cs"
    why_empty = ": the rounds have removed all of them. Use fewer rounds or a smaller rate"
    gate_type = SequentialGate

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        rate: float = 0.2,
        mask_init: float = 0.0,
        penalty: float = 1e-8,
        final_temperature: float = 200.0,
        select: Select = "paper",
        mask_scale: Literal["init", "none"] = "init",
        anneal_every: int = 1,
        rewind_step: int | None = 0,
        rewind: bool = False,
    ) -> None:
        check(0 < rate < 1, f"rate={rate}: the fraction removed a round is between 0 and 1")
        self.rate = rate
        super().__init__(
            model,
            steps=steps,
            mask_init=mask_init,
            penalty=penalty,
            final_temperature=final_temperature,
            select=select,
            mask_scale=mask_scale,
            anneal_every=anneal_every,
            rewind_step=rewind_step,
            rewind=rewind,
        )

    def on_commit(self, _: Evaluate | None) -> Mask:
        scores = {n: g.score.detach().reshape(g.layout.weight) for n, g in self.gates.items()}
        return Mask(remove_lowest(scores, self.mask(), self.rate))

    def on_round_end(self) -> None:
        super().on_round_end()  # s <- min(beta_T * s_T, s0), beta <- 1
        with torch.no_grad():
            for gate in self.gates.values():
                score = gate.score
                # A suppressed score grows beta_T-fold each round: it must not become infinite too.
                score.clamp_(min=torch.finfo(score.dtype).min)
                score.masked_fill_(~gate.mask().reshape(score.shape), -torch.inf)

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "rate": self.rate}
