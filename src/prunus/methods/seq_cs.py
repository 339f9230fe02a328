"""Sequential Continuous Sparsification (appendix F of the paper)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from prunus.gates import Granularity, SigmoidGate
from prunus.masks import Mask
from prunus.methods.common.competition import Scope
from prunus.methods.common.ranking import remove_lowest
from prunus.methods.common.targets import Fractions
from prunus.methods.cs import ContinuousSparsification
from prunus.methods.hooks import Evaluate
from prunus.methods.imp import RATE
from prunus.methods.settings import setting


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
    with the lowest scores is removed for good (`s <- -inf`); the others are kept even if their
    score is negative. Then `s <- min(beta_T * s_T, s0)` for those and `beta <- 1`, as in CS: what
    the round has suppressed starts the next one suppressed, and so is the first to be removed.

    The binary mask is "not removed so far". Within a round it is therefore the mask of the round
    before, while the gates are soft; and under it a kept weight counts in full, whatever its score.
    """

    name = "seq-cs"
    why_empty = ": the rounds have removed all of them. Use fewer rounds or a smaller rate"
    gate_type = SequentialGate
    governed = None

    rate: float = setting(
        "the fraction of the remaining weights that a round removes", default=0.2, must=RATE
    )
    # Settings of CS that are fixed here:
    target_density: Fractions = setting("none", default=None, init=False)
    target_macs: Fractions = setting("none", default=None, init=False)
    scope: Scope = setting("there is no budget", default="global", init=False)
    scores: Literal["method", "optimiser"] = setting(
        "the optimiser moves the scores", default="optimiser", init=False
    )
    penalty_cost: Literal["weights", "macs"] = setting(
        "every weight counts alike", default="weights", init=False
    )
    granularity: Granularity = setting("one gate a weight", default="weight", init=False)
    freeze_weights: bool = setting("the weights learn too", default=False, init=False)

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
