"""Iterative Stochastic Sparsification (algorithm 3 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from prunus.gates import BernoulliGate
from prunus.masks import Mask
from prunus.methods.common.families import Freezable, Penalised, Rewinding, Seeded, sampler
from prunus.methods.common.groups import Groups
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Governed, Must, setting
from prunus.selection import Candidate


class IterativeStochasticSparsification(Rewinding, Freezable, Seeded, Penalised[BernoulliGate]):
    """Learn `s` with `m ~ Ber(sigmoid(s))`: minimise `E[L(f(.; m * w))] + lambda*||sigmoid(s)||_1`.

    `m` is drawn anew in every forward pass in training mode, and its gradient goes straight through
    to `sigmoid(s)`. Whatever optimiser trains the weights, `step` trains the scores by SGD with
    `score_lr` and `score_momentum`: so do not clear their gradients before `step`
    (`optimizer.zero_grad()` leaves them alone, `model.zero_grad()` does not).

    A round ends with one mask `m ~ Ber(sigmoid(s_T))`, drawn from `seed` and the round's number.
    For the next round scores below `s0` become minus infinity, which removes their weights for
    good; the others stay where they are.

    With one round and `freeze_weights` this is Stochastic Sparsification, which finds a supermask.
    """

    name = "iss"
    governed = Governed("penalty", few=3e-4, many=3e-5, logarithmic=True)

    rewinds = True
    mask_init: float = setting(
        "`s0`: where scores start",
        default=1.0,
        must=Must(
            lambda s: -30 <= s <= 30,
            "sigmoid(s0) is how probable it is that a weight is kept; beyond -30 and 30 that never "
            "changes (the paper's s0 is 1)",
        ),
    )
    score_lr: float = setting(
        "learning rate of the scores",
        default=20.0,
        must=Must(
            lambda rate: 0 < rate < math.inf,
            "the scores' learning rate must be positive (the paper's are 20 and, for supermasks, "
            "100)",
        ),
    )
    score_momentum: float = setting(
        "momentum of the scores' SGD",
        default=0.9,
        must=Must(lambda m: 0 <= m < 1, "momentum is at least 0 and below 1 (Zhou et al.: 0.9)"),
    )

    def make_gate(self, candidate: Candidate) -> BernoulliGate:
        return BernoulliGate(candidate.parameter, self.mask_init)

    def param_groups(
        self, lr: float, groups: Groups | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """The weights alone (none with `freeze_weights`): `step` trains the scores."""
        return super().param_groups(lr, groups, **options) or [{**options, "params": [], "lr": lr}]

    def penalty_terms(self) -> Iterator[Tensor]:
        """`||sigmoid(s)||_1`."""
        return (gate.soft_mask() for gate in self.gates.values())

    @torch.no_grad()
    def on_step(self) -> None:
        for gate in self.gates.values():
            if gate.score.grad is not None:
                gate.velocity.mul_(self.score_momentum).add_(gate.score.grad)
                gate.score.sub_(gate.velocity, alpha=self.score_lr)
                gate.score.grad = None

    def on_commit(self, _: Evaluate | None) -> Mask:
        generator = sampler(self.seed, self.round)
        return Mask({name: gate.sample(generator) for name, gate in self.gates.items()})

    @torch.no_grad()
    def on_round_end(self) -> None:
        for gate in self.gates.values():
            gate.score.masked_fill_(gate.score < self.mask_init, -torch.inf)
            gate.velocity.zero_()
