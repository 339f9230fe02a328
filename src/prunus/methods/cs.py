"""Continuous Sparsification (algorithm 2 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from prunus.errors import AttachError, SearchWarning, warn_caller
from prunus.gates import SigmoidGate, gate_together, layout
from prunus.masks import Mask
from prunus.methods.common import learned_size
from prunus.methods.common.budget import all_equal
from prunus.methods.common.families import Freezable, Penalised, Rewinding
from prunus.methods.common.groups import Groups
from prunus.methods.common.learned_size import LearnedSize
from prunus.methods.common.misuse import signs_of_misuse
from prunus.methods.common.own_scores import OwnScores
from prunus.methods.common.round_budgets import RoundBudgets, has_budget
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Governed, Must, check, setting
from prunus.selection import Candidate

PAPER_STEPS = 85 * 391
"""Steps of one round in the paper: 85 epochs of CIFAR-10 in batches of 128."""

_SHIFTS = 200
"""How often in a round the scores are shifted to meet the density of the moment."""


class ContinuousSparsification(Rewinding, Freezable, RoundBudgets, Penalised[SigmoidGate]):
    """Learn a binary mask by gradient descent on `L(f(.; sigmoid(beta*s) * w)) + lambda*||m||_1`.

    Attach it to any model, then train with `param_groups`, add `penalty()` to the loss and call
    `step()` after each optimiser step. Over the `steps` (`T`) of a round the temperature `beta`
    rises from 1 to `final_temperature` (`beta_T`) as `beta_T ** (t/T)`.

    Two settings decide how many weights are kept. `mask_init` (`s0`), where scores start: lower
    keeps fewer. Or `target_density`, which the search ends at, to the nearest weight (with coarser
    `granularity`: missed by half of the largest gate at most). The threshold that scores must
    exceed then follows their quantile: `sigmoid(beta*(s - tau_t))`, where `tau_t` leaves a density
    that falls from 1 to the target over the first 80 % of the round. `target_macs`, `scope` and a
    `granularity` of `"N:M"` are other budgets, met in the same way with several thresholds.

    With a budget the scores are not the optimiser's business: `param_groups` has the weights alone,
    and `step` moves the scores, by gradients that it clears itself (`optimizer.zero_grad()` leaves
    them alone; `model.zero_grad()` does not, so call that after `step`). `OwnScores` has the rule,
    which needs no rate; `scores="optimiser"` is the paper's.
    """

    name = "cs"
    governed: ClassVar[Governed | None] = Governed("mask_init", few=-0.3, many=0.1)
    why_empty = (
        ": no score is above zero (yet). Use more steps, a larger score_lr or a larger mask_init"
    )
    gate_type: ClassVar[type[SigmoidGate]] = SigmoidGate

    mask_init: float = setting(
        "`s0`: where scores start; lower keeps fewer weights",
        default=0.0,
        must=Must(
            lambda s: -100 <= s <= 100,
            "scores start near zero (the paper's are from -0.3 to 0.3)",
        ),
    )
    scores: Literal["method", "optimiser"] = setting(
        'with a budget, what moves the scores: "method" needs no rate and suits every optimiser; '
        '"optimiser" is the paper\'s way, and the only one without a budget',
        default="method",
    )
    penalty_cost: Literal["weights", "macs"] = setting(
        'what the penalty counts: "weights" counts every weight alike; "macs" as often as it is '
        "used for one input, in units of the mean over all weights, so that the search asks for a "
        "fast network instead of a small one (known from the first forward pass on)",
        default="weights",
        added=True,
    )
    final_temperature: float = setting(
        "`beta_T`: the temperature at the end of a round",
        default=200.0,
        must=Must(
            lambda beta: 1 < beta < math.inf,
            "beta rises from 1, so beta_T must exceed 1 (the paper uses 200)",
        ),
    )
    mask_scale: Literal["init", "constant", "none"] = setting(
        'factor on the mask: "init" begins as `1/sigmoid(s0)`, so that attaching changes no '
        "output, and then it is learned how much a kept weight counts, if step() moves the scores "
        'and the network has no BatchNorm; "constant" stays there, as in the published code; '
        '"none" is the formula as printed in the paper',
        default="init",
    )
    anneal_every: int = setting(
        "steps between two rises of the temperature, the last of them at `beta_T` (an epoch: the "
        "published code)",
        default=1,
    )

    @classmethod
    def complete(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        if has_budget(given) and given.get("scores", "method") == "method":
            _refuse_rate(given.get("score_lr"))
        return super().complete(given)

    @classmethod
    def without_effect(cls, settings: Mapping[str, Any]) -> set[str]:
        return set() if has_budget(settings) else {"scores"}

    def prepare(self) -> None:
        super().prepare()
        check(
            self.anneal_every == 1 or 1 < self.anneal_every <= self.steps // 2,
            f"anneal_every={self.anneal_every} is not between 1 and half of the {self.steps} steps "
            "a round",
        )
        check(
            not self.targets or self.mask_init == 0,
            f"mask_init={self.mask_init} and a budget are two ways to say how many weights to "
            "keep: give one of them",
        )
        if not self.targets:
            self.scores = "optimiser"
        self._learns_size = (
            self.mask_scale == "init"
            and self.scores == "method"
            and learned_size.matters(self.model)
        )

    def make_gate(self, candidate: Candidate) -> SigmoidGate:
        constant = self.mask_scale != "none" and not self._learns_size
        scale = 1 + math.exp(-self.mask_init) if constant else 1.0
        return self.gate_type(
            candidate.parameter,
            layout(candidate, self.granularity),
            self.mask_init,
            scale,
            penalised=self.penalty_strength > 0,
            learns_size=self._learns_size,
        )

    def on_attach(self) -> None:
        super().on_attach()
        gate_together(self.model)
        self._own, self._size = OwnScores(), LearnedSize()

    @property
    def counts_macs(self) -> bool:
        return self.penalty_cost == "macs" or self.target_macs is not None

    def param_groups(
        self,
        lr: float,
        groups: Groups | None = None,
        *,
        score_lr: Annotated[
            float | None, "learning rate of the scores (None: grows as rounds get shorter)"
        ] = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Two groups: the weights with `lr` and `options`, the scores without weight decay.

        With a budget the weights alone, unless `scores="optimiser"`: `step` moves the scores.

        The total movement of a score grows with its learning rate and the number of steps, and in a
        short run with the paper's rate nothing crosses zero. So `score_lr` is `lr` at the paper's
        33,235 steps a round and grows as the root of `33,235 / steps` below that, unless given.
        """
        weights = super().param_groups(lr, groups, **options)
        if self.scores == "method":
            _refuse_rate(score_lr)
            return weights or [{**options, "params": [], "lr": lr}]
        if score_lr is None:
            score_lr = lr * max(1.0, PAPER_STEPS / self.steps) ** 0.5
        return [*weights, self.gate_group(score_lr, options)]

    def penalty_terms(self) -> Iterator[Tensor]:
        """`||sigmoid(beta*s)||_1`; cheapest after the forward pass of the same step."""
        costs = self.costs()
        if self.penalty_cost == "weights":
            return (gate.l1() for gate in self.gates.values())
        return (gate.l1() * costs[name] for name, gate in self.gates.items())

    @property
    def temperature(self) -> float:
        """`beta` now."""
        return float(next(iter(self.gates.values())).temperature)

    def on_step(self) -> None:
        gates, progress = list(self.gates.values()), self._progress(self.t)
        beta, own = self.final_temperature, self.scores == "method"
        if own:
            self._own.move(gates, beta, self._progress(self.t - 1))
        if self._learns_size:
            self._size.learn(gates, self.steps)
        # Scores grow fast at first: with each doubling of t their spread is measured anew.
        doubled = own and self.t & (self.t - 1) == 0
        if self.targets and (doubled or self.t % max(1, self.steps // _SHIFTS) == 0):
            self.meet_budget_of_now()
            if own:
                self._own.measure(gates, beta, progress)
        beta = self._own.temperature(beta, progress) if own else beta**progress
        self._set_temperature(beta)
        self._settle(beta * self._own.spread)

    def _progress(self, t: int) -> float:
        """Of the temperature after `t` steps, from 0 to 1."""
        if self.anneal_every == 1:
            return min(1.0, t / self.steps)
        levels = self.steps // self.anneal_every
        return min(1.0, (t // self.anneal_every) / (levels - 1))

    def end_round(self, evaluate: Evaluate | None = None) -> Mask:
        self._check_attached()
        if self.t == 0 and not self.hardened:
            raise AttachError(
                f"round {self.round} has had no step() yet: its scores still stand at their start"
            )
        return super().end_round(evaluate)

    def on_commit(self, evaluate: Evaluate | None) -> Mask:
        at_rest = all_equal(list(self.gates.values()))
        if self.targets:
            self.meet_budget_of_round()
        for sign in signs_of_misuse(
            self.stats(), t=self.t, steps=self.steps, idle=self._own.idle, at_rest=at_rest
        ):
            warn_caller(sign, SearchWarning)
        return super().on_commit(evaluate)

    def on_round_end(self) -> None:
        with torch.no_grad():
            for gate in self.gates.values():
                if self.scores == "method":  # gates become soft again: what is removed stays closed
                    gate.score.copy_(torch.where(gate.score > 0, 0.0, -torch.inf))
                else:  # s <- min(beta_T * s_T, s0), and only then beta <- 1
                    gate.score.mul_(gate.temperature).clamp_(max=self.mask_init)
            for name, weight in self.weights.items():
                self.gates[name].fold(weight)
        self._size = LearnedSize()
        self._set_temperature(1.0)
        self._settle(0.0)
        self._own.end_round()

    def rewind(self) -> None:
        super().rewind()
        for gate in self.gates.values():  # the size was learned for other weights than w^(k)
            gate.unscale()

    def state_dict(self) -> dict[str, Any]:
        """The method's own state; the model's `state_dict` has the scores and weights."""
        return {**super().state_dict(), **self._own.state_dict(), **self._size.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where `state_dict` was taken, in any order with the model's own."""
        check(
            self.scores == "optimiser" or "spread" in state,
            "this state is of a version in which the optimiser moved the scores of CS with a "
            'budget too; make the method with scores="optimiser"',
        )
        super().load_state_dict(state)
        self._own.load_state_dict(state)
        self._size.load_state_dict(state)

    def _set_temperature(self, beta: float) -> None:
        for gate in self.gates.values():
            gate.temperature.fill_(beta)

    def _settle(self, u: float) -> None:
        """The median of the gates above zero, `u = beta*z`, counts as the learned size."""
        if not self._learns_size:
            return
        size = self._size.now(u)
        for gate in self.gates.values():
            assert gate.settling is not None and gate.size is not None
            gate.settling.fill_(1 + math.exp(-u))
            gate.size.fill_(size)


def _refuse_rate(score_lr: float | None) -> None:
    """With a budget."""
    check(
        score_lr is None,
        f"score_lr={score_lr}: with a target_density step() moves the scores, and there is no "
        'rate; leave score_lr out, or make the method with scores="optimiser"',
    )
