"""Continuous Sparsification (algorithm 2 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from prunus.errors import AttachError
from prunus.gates import Granularity, SigmoidGate, layout
from prunus.masks import Mask
from prunus.methods.base import Evaluate, Method
from prunus.methods.budget import check_feasible, cut_scores, shift_scores
from prunus.methods.checks import check, check_choice, check_density, check_reachable
from prunus.methods.costs import MultiplyAdds
from prunus.methods.penalties import check_penalty, total
from prunus.methods.schedules import cubic
from prunus.selection import Candidate, Select

PAPER_STEPS = 85 * 391
"""Steps of one round in the paper: 85 epochs of CIFAR-10 in batches of 128."""

_SETTLED = 0.8
"""The part of a round after which a density that was asked for is reached."""

_SHIFTS = 200
"""How often in a round the scores are shifted to meet the density of the moment."""


class ContinuousSparsification(Method):
    """Learn a binary mask by gradient descent on `L(f(.; sigmoid(beta*s) * w)) + lambda*||m||_1`.

    Attach it to any model, then train with `param_groups`, add `penalty()` to the loss and call
    `step()` after each optimiser step:

    - `steps` (`T`): training steps in a round, over which the temperature `beta` rises from 1 to
      `final_temperature` (`beta_T`) as `beta_T ** (t/T)`; with `anneal_every=n` it rises every n
      steps only, and the last n are trained at `beta_T` (n = an epoch: the published code).
    - `mask_init` (`s0`): where scores start. The one knob for density: lower keeps fewer weights.
    - `target_density`: or the density to end at, within 0.1 percentage points (of few weights: to
      the nearest weight). The threshold that
      scores must exceed then follows their quantile: `sigmoid(beta*(s - tau_t))`, where `tau_t`
      leaves a density that falls from 1 to the target over the first 80 % of the round. Several
      densities, one a round, make one search find tickets of all of them.
    - `penalty` (`lambda`): strength of the l1 penalty on the soft mask.
    - `penalty_cost`: `"weights"` counts every weight alike in the penalty; `"macs"` counts it as
      often as it is used for one input, in units of the mean over all weights, so that the search
      asks for a fast network instead of a small one. It is known from the first forward pass on.
    - `select`, `granularity`: which weights have gates, and how many weights share one.
    - `mask_scale`: `"init"` multiplies the mask by `1/sigmoid(s0)`, as the published code does, so
      that attaching changes no output; `"none"` is the formula as printed in the paper.
    - `rewind_step` (`k`), `rewind`: the weights of tickets; whether each round returns to them.
    - `freeze_weights`: learn the mask alone, for a network whose weights stay random (supermask).
    """

    name = "cs"
    why_empty = (
        ": no score is above zero (yet). Use more steps, a larger score_lr or a larger mask_init"
    )
    added_settings: ClassVar[Mapping[str, object]] = {"penalty_cost": "weights"}
    gate_type: ClassVar[type[SigmoidGate]] = SigmoidGate
    gates: dict[str, SigmoidGate]  # type: ignore[assignment]

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        mask_init: float = 0.0,
        target_density: float | Sequence[float] | None = None,
        penalty: float = 1e-8,
        penalty_cost: Literal["weights", "macs"] = "weights",
        final_temperature: float = 200.0,
        select: Select = "paper",
        granularity: Granularity = "weight",
        mask_scale: Literal["init", "none"] = "init",
        anneal_every: int = 1,
        rewind_step: int | None = 0,
        rewind: bool = False,
        freeze_weights: bool = False,
    ) -> None:
        check(
            -100 <= mask_init <= 100,
            f"mask_init={mask_init}: scores start near zero (the paper's are from -0.3 to 0.3)",
        )
        check_penalty(penalty)
        check(
            math.isfinite(final_temperature) and final_temperature > 1,
            f"final_temperature={final_temperature}: beta rises from 1, so beta_T must exceed 1 "
            "(the paper uses 200)",
        )
        check_choice("mask_scale", mask_scale, ("init", "none"))
        check_choice("penalty_cost", penalty_cost, ("weights", "macs"))
        check(
            anneal_every == 1 or 1 < anneal_every <= steps // 2,
            f"anneal_every={anneal_every} is not between 1 and half of the {steps} steps a round",
        )
        self.targets = _targets(target_density)
        if self.targets:
            check(
                mask_init == 0,
                f"mask_init={mask_init} and target_density={target_density} are two ways to say "
                "how many weights to keep: give one of them",
            )
        self.mask_init = mask_init
        self.penalty_strength = penalty
        self.penalty_cost = penalty_cost
        self.final_temperature = final_temperature
        self.granularity = granularity
        self.mask_scale = mask_scale
        self.anneal_every = anneal_every
        super().__init__(
            model,
            steps=steps,
            select=select,
            rewind_step=rewind_step,
            rewind=rewind,
            freeze_weights=freeze_weights,
        )
        self._costs: Mapping[str, float] | None = None
        self._counting = MultiplyAdds(self.selection) if penalty_cost == "macs" else None

    def check_gates(self) -> None:
        for density in self.targets:
            check_reachable(density, self.selection)
            check_feasible(list(self.gates.values()), density)

    def check_rounds(self, rounds: int) -> None:
        check(
            rounds >= len(self.targets),
            f"target_density={self.targets} is one for each of {len(self.targets)} rounds, but "
            f"there is only {rounds}: do more rounds, or give fewer densities",
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

    def param_groups(
        self, lr: float, *, score_lr: float | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """Two groups: the weights with `lr` and `options`, the scores without weight decay.

        The total movement of a score grows with its learning rate and the number of steps, and in a
        short run with the paper's rate nothing crosses zero. So `score_lr` is `lr` at the paper's
        33,235 steps a round and grows as the root of `33,235 / steps` below that, unless given.
        """
        if score_lr is None:
            score_lr = lr * max(1.0, PAPER_STEPS / self.steps) ** 0.5
        own = self.gate_group(score_lr, options)
        return [*super().param_groups(lr, **options), own]

    def penalty(self) -> Tensor:
        """`lambda * ||sigmoid(beta*s)||_1`; cheapest after the forward pass of the same step."""
        self._check_attached()
        if self.hardened or not self.penalty_strength:
            return super().penalty()
        return self.penalty_strength * total(self._weighted_l1())

    def _weighted_l1(self) -> Iterator[Tensor]:
        if self._counting is None:
            return (gate.l1() for gate in self.gates.values())
        if self._costs is None:
            self._costs = self._counting.factors()
        costs = self._costs
        return (gate.l1() * costs[name] for name, gate in self.gates.items())

    @property
    def temperature(self) -> float:
        """`beta` now."""
        return float(next(iter(self.gates.values())).temperature)

    def on_step(self) -> None:
        if self.anneal_every == 1:
            progress = self.t / self.steps
        else:
            stages = self.steps // self.anneal_every
            progress = (self.t // self.anneal_every) / (stages - 1)
        self._set_temperature(self.final_temperature ** min(1.0, progress))
        if self.targets and self.t % max(1, self.steps // _SHIFTS) == 0:
            before, after = self._target(self.round - 1), self._target(self.round)
            density = cubic(before, after, self.t / (_SETTLED * self.steps))
            shift_scores(list(self.gates.values()), density)

    def end_round(self, evaluate: Evaluate | None = None) -> Mask:
        self._check_attached()
        if self.t == 0 and not self.hardened:
            raise AttachError(
                f"round {self.round} has had no step() yet: its scores still stand at their start"
            )
        return super().end_round(evaluate)

    def on_commit(self, evaluate: Evaluate | None) -> Mask:
        if self.targets:
            cut_scores(list(self.gates.values()), self._target(self.round))
        return super().on_commit(evaluate)

    def on_round_end(self) -> None:
        with torch.no_grad():
            for gate in self.gates.values():
                # s <- min(beta_T * s_T, s0), and only then beta <- 1
                gate.score.mul_(gate.temperature).clamp_(max=self.mask_init)
        self._set_temperature(1.0)

    def _target(self, round_: int) -> float:
        """Where a round ends; rounds beyond the last target stay there."""
        return self.targets[min(round_, len(self.targets)) - 1] if round_ else 1.0

    def _set_temperature(self, beta: float) -> None:
        for gate in self.gates.values():
            gate.temperature.fill_(beta)

    @property
    def settings(self) -> dict[str, Any]:
        granularity = self.granularity
        return {
            **super().settings,
            "mask_init": self.mask_init,
            "target_density": self.targets[0] if len(self.targets) == 1 else self.targets or None,
            "penalty": self.penalty_strength,
            "penalty_cost": self.penalty_cost,
            "final_temperature": self.final_temperature,
            "granularity": granularity if isinstance(granularity, str) else list(granularity),
            "mask_scale": self.mask_scale,
            "anneal_every": self.anneal_every,
        }


def _targets(target_density: float | Sequence[float] | None) -> list[float]:
    """The density of each round; none if there is no budget."""
    if target_density is None:
        return []
    targets = list(target_density) if isinstance(target_density, Sequence) else [target_density]
    check(bool(targets), "target_density is an empty list: give a density for each round")
    for target in targets:
        check_density(target)
    check(
        targets == sorted(targets, reverse=True),
        f"target_density={targets}: a round cannot keep more than the one before it",
    )
    return targets
