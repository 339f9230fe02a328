"""Iterative Stochastic Sparsification (algorithm 3 of the paper)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from prunus.gates import BernoulliGate
from prunus.masks import Mask
from prunus.methods.base import Evaluate, Method
from prunus.methods.checks import check
from prunus.methods.penalties import check_penalty, total
from prunus.methods.sampling import check_seed, sampler
from prunus.selection import Candidate, Select


class IterativeStochasticSparsification(Method):
    """Learn `s` with `m ~ Ber(sigmoid(s))`: minimise `E[L(f(.; m * w))] + lambda*||sigmoid(s)||_1`.

    `m` is drawn anew in every forward pass in training mode, and its gradient goes straight through
    to `sigmoid(s)`. Scores have plain SGD of their own with the rate `score_lr`, which `step` does,
    whatever optimiser trains the weights: so do not clear their gradients before `step`
    (`optimizer.zero_grad()` leaves them alone, `model.zero_grad()` does not).

    - `mask_init` (`s0`), `penalty` (`lambda`), `score_lr`: 1, 1e-8 and 20 in the paper.
    - A round ends with one mask `m ~ Ber(sigmoid(s_T))`, drawn from `seed` and the round's number.
      For the next round scores below `s0` become minus infinity, which removes their weights for
      good; the others go on from where they are.
    - With one round and `freeze_weights` this is Stochastic Sparsification, which finds a supermask
      (the paper uses `score_lr=100` there).
    """

    name = "iss"
    gates: dict[str, BernoulliGate]  # type: ignore[assignment]

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        mask_init: float = 1.0,
        penalty: float = 1e-8,
        score_lr: float = 20.0,
        seed: int = 0,
        select: Select = "paper",
        rewind_step: int | None = 0,
        rewind: bool = True,
        freeze_weights: bool = False,
    ) -> None:
        check(
            -30 <= mask_init <= 30,
            f"mask_init={mask_init}: sigmoid(s0) is how probable it is that a weight is kept; "
            "beyond -30 and 30 that never changes (the paper's s0 is 1)",
        )
        check_penalty(penalty)
        check(
            math.isfinite(score_lr) and score_lr > 0,
            f"score_lr={score_lr}: the scores' learning rate must be positive (the paper's are 20 "
            "and, for supermasks, 100)",
        )
        check_seed(seed)
        self.mask_init = mask_init
        self.penalty_strength = penalty
        self.score_lr = score_lr
        self.seed = seed
        super().__init__(
            model,
            steps=steps,
            select=select,
            rewind_step=rewind_step,
            rewind=rewind,
            freeze_weights=freeze_weights,
        )

    def make_gate(self, candidate: Candidate) -> BernoulliGate:
        return BernoulliGate(candidate.parameter, self.mask_init)

    def param_groups(self, lr: float, **options: Any) -> list[dict[str, Any]]:
        """The weights alone (none with `freeze_weights`): `step` trains the scores."""
        return super().param_groups(lr, **options) or [{**options, "params": [], "lr": lr}]

    def penalty(self) -> Tensor:
        """`lambda * ||sigmoid(s)||_1`."""
        self._check_attached()
        if self.hardened or not self.penalty_strength:
            return super().penalty()
        return self.penalty_strength * total(gate.soft_mask() for gate in self.gates.values())

    @torch.no_grad()
    def on_step(self) -> None:
        for gate in self.gates.values():
            if gate.score.grad is not None:
                gate.score.sub_(gate.score.grad, alpha=self.score_lr)
                gate.score.grad = None

    def on_commit(self, _: Evaluate | None) -> Mask:
        generator = sampler(self.seed, self.round)
        return Mask({name: gate.sample(generator) for name, gate in self.gates.items()})

    @torch.no_grad()
    def on_round_end(self) -> None:
        for gate in self.gates.values():
            gate.score.masked_fill_(gate.score < self.mask_init, -torch.inf)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            **super().settings,
            "mask_init": self.mask_init,
            "penalty": self.penalty_strength,
            "score_lr": self.score_lr,
            "seed": self.seed,
        }
