"""Continuous Sparsification (algorithm 2 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal
from warnings import warn

import torch
from torch import Tensor

from prunus.errors import AttachError, PrunusWarning, SearchWarning
from prunus.gates import Granularity, Layout, SigmoidGate, layout
from prunus.masks import Mask
from prunus.methods.common.budget import (
    all_equal,
    competition_of,
    cut_scores,
    move_scores,
    nearest,
    shift_scores,
    spread,
)
from prunus.methods.common.budgeted import Counting
from prunus.methods.common.competition import EVERYTHING, Budget, Competition, Scope
from prunus.methods.common.families import Freezable, Penalised, Rewinding
from prunus.methods.common.groups import Groups
from prunus.methods.common.misuse import signs_of_misuse
from prunus.methods.common.schedules import cosine
from prunus.methods.common.targets import (
    Fractions,
    as_settings,
    budgets,
    check_affordable,
    check_targets,
)
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Governed, Must, check, setting
from prunus.selection import Candidate

PAPER_STEPS = 85 * 391
"""Steps of one round in the paper: 85 epochs of CIFAR-10 in batches of 128."""

_SETTLED = 0.8
"""The part of a round after which a density that was asked for is reached."""

_SHIFTS = 200
"""How often in a round the scores are shifted to meet the density of the moment."""

_SOFT = 0.001
"""With a budget, `beta` in units of the scores' spread when a round begins."""

_UNDECIDED = 0.02
"""With a budget, how many gates may be in transition in the end, for each that is kept."""

_DECIDED = 5.0
"""The `beta*s` of a gate that is no longer in transition."""

_SHARPEST = 1e4
"""How many times larger than `beta_T` the temperature may become for that."""


class ContinuousSparsification(Rewinding, Freezable, Counting[SigmoidGate], Penalised[SigmoidGate]):
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
    them alone; `model.zero_grad()` does not, so call that after `step`). There is no rate: with
    `u = beta*s`,

        s <- s - beta_T^(t/T) * (1 + cos(pi*t/T))/2 * dL/du,     beta = beta_T/10 * (t/T)^6 / z,

    where `z` is the spread of the scores, the median of those above zero. In the last tenth of the
    round `beta` rises tenfold more, to `beta_T / z`; and further if that leaves many in transition.
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
    target_density: Fractions = setting(
        "instead of `mask_init`, the density to end at; or one for each round, so that one search "
        "finds tickets of several densities",
        default=None,
    )
    target_macs: Fractions = setting(
        "instead of `target_density` or with it, the fraction of the multiply-adds (of the "
        "selected layers) to end at",
        default=None,
        added=True,
    )
    scope: Scope = setting(
        "where scores compete for the budget: in the whole network or in each layer",
        default="global",
        added=True,
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
    granularity: Granularity = setting(
        "how many weights share a gate; or a pattern such as 2:4, which is a budget as well",
        default="weight",
    )
    mask_scale: Literal["init", "none"] = setting(
        'factor on the mask: "init" is `1/sigmoid(s0)`, as in the published code, so that '
        'attaching changes no output; "none" is the formula as printed in the paper',
        default="init",
    )
    anneal_every: int = setting(
        "steps between two rises of the temperature, the last of them at `beta_T` (an epoch: the "
        "published code)",
        default=1,
    )

    @classmethod
    def without_effect(cls, settings: Mapping[str, Any]) -> set[str]:
        return set() if settings.get("target_density") else {"scores"}

    def prepare(self) -> None:
        check(
            self.anneal_every == 1 or 1 < self.anneal_every <= self.steps // 2,
            f"anneal_every={self.anneal_every} is not between 1 and half of the {self.steps} steps "
            "a round",
        )
        self.targets = budgets(self.target_density, self.target_macs, self.scope, self.granularity)
        self.target_density, self.target_macs = as_settings(self.targets)
        check(
            not self.targets or self.mask_init == 0,
            f"mask_init={self.mask_init} and a budget are two ways to say how many weights to "
            "keep: give one of them",
        )
        if not self.targets:
            self.scores = "optimiser"

    def check_gates(self) -> None:
        check_targets(self._layouts, self.targets, self.scope)

    def check_costs(self, costs: Mapping[str, float]) -> None:
        check_affordable(self._layouts, self.targets, costs)

    def check_rounds(self, rounds: int) -> None:
        check(
            rounds >= len(self.targets),
            f"{self._budget} is one for each of {len(self.targets)} rounds, but there is only "
            f"{rounds}: do more rounds, or give fewer targets",
        )
        if self.targets and rounds > len(self.targets):
            last = self.targets[-1].density or self.targets[-1].macs or 1.0
            path = [f"{last ** (n / rounds):.3g}" for n in range(1, rounds + 1)]
            warn(
                f"{self._budget} with {rounds} rounds: those after round {len(self.targets)} "
                f"hardly change the mask. Do fewer rounds, or give one for each, such as "
                f"[{', '.join(path)}]",
                PrunusWarning,
                stacklevel=2,
            )

    def make_gate(self, candidate: Candidate) -> SigmoidGate:
        scale = 1 + math.exp(-self.mask_init) if self.mask_scale == "init" else 1.0
        return self.gate_type(
            candidate.parameter,
            layout(candidate, self.granularity),
            self.mask_init,
            scale,
            penalised=self.penalty_strength > 0,
        )

    def on_attach(self) -> None:
        super().on_attach()
        self._spread = self._sharper = 1.0
        self._idle = 0  # steps without a gradient of the scores, in this round

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
            check(
                score_lr is None,
                f"score_lr={score_lr}: with a target_density step() moves the scores, and there is "
                'no rate; leave score_lr out, or make the method with scores="optimiser"',
            )
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
        gates = list(self.gates.values())
        own = self.scores == "method"
        # As in the paper: dL/ds is beta * dL/du, and the rate falls to zero.
        before = self._progress(self.t - 1)
        if own and not move_scores(gates, cosine(self.final_temperature**before, before)):
            self._idle += 1
        # Scores grow fast at first: with each doubling of t their spread is measured anew.
        doubled = own and self.t & (self.t - 1) == 0
        progress, beta_end = self._progress(self.t), self.final_temperature
        late = max(0.0, 10 * progress - 9)
        if self.targets and (doubled or self.t % max(1, self.steps // _SHIFTS) == 0):
            start, end = self._target(self.round - 1), self._target(self.round)
            budget = start.towards(end, self.t / (_SETTLED * self.steps))
            shift_scores(gates, budget, self._competition())
            if own:
                self._spread = spread(gates)
                if late:
                    wanted = _DECIDED / max(nearest(gates, _UNDECIDED), 1e-30)
                    self._sharper = min(max(1.0, wanted * self._spread / beta_end), _SHARPEST)
        if own:
            beta = _SOFT + beta_end * progress**6 / 10 ** min(1.0, 10 * (1 - progress))
            self._set_temperature(beta * self._sharper**late / self._spread)
        else:
            self._set_temperature(beta_end**progress)

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
        gates = list(self.gates.values())
        at_rest = all_equal(gates)
        if self.targets:
            cut_scores(gates, self._target(self.round), self._competition())
        for sign in signs_of_misuse(
            self.stats(), t=self.t, steps=self.steps, idle=self._idle, at_rest=at_rest
        ):
            warn(sign, SearchWarning, stacklevel=2)
        return super().on_commit(evaluate)

    def on_round_end(self) -> None:
        with torch.no_grad():
            for gate in self.gates.values():
                if self.scores == "method":  # gates become soft again: what is removed stays closed
                    gate.score.copy_(torch.where(gate.score > 0, 0.0, -torch.inf))
                else:  # s <- min(beta_T * s_T, s0), and only then beta <- 1
                    gate.score.mul_(gate.temperature).clamp_(max=self.mask_init)
        self._set_temperature(1.0)
        self._sharper, self._idle = 1.0, 0

    def state_dict(self) -> dict[str, Any]:
        """The method's own state; the model's `state_dict` has the scores and weights."""
        own = {"spread": self._spread, "sharper": self._sharper, "idle": self._idle}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where `state_dict` was taken, in any order with the model's own."""
        check(
            self.scores == "optimiser" or "spread" in state,
            "this state is of a version in which the optimiser moved the scores of CS with a "
            'budget too; make the method with scores="optimiser"',
        )
        super().load_state_dict(state)
        self._spread, self._sharper = state.get("spread", 1.0), state.get("sharper", 1.0)
        self._idle = state.get("idle", 0)

    def _target(self, round_: int) -> Budget:
        """Where a round ends; rounds beyond the last target stay there."""
        return self.targets[min(round_, len(self.targets)) - 1] if round_ else EVERYTHING

    def _competition(self) -> Competition:
        costs = [self.costs()[name] for name in self.gates] if self.target_macs else None
        return competition_of(list(self.gates.values()), scope=self.scope, costs=costs)

    @property
    def _layouts(self) -> dict[str, Layout]:
        return {name: gate.layout for name, gate in self.gates.items()}

    @property
    def _budget(self) -> str:
        given = {"target_density": self.target_density, "target_macs": self.target_macs}
        return ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)

    def _set_temperature(self, beta: float) -> None:
        for gate in self.gates.values():
            gate.temperature.fill_(beta)
