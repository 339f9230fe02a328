"""Continuous Sparsification (algorithm 2 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal
from warnings import warn

import torch
from torch import Tensor

from prunus.errors import AttachError, PrunusWarning
from prunus.gates import Granularity, SigmoidGate, layout
from prunus.masks import Mask
from prunus.methods.common.budget import check_feasible, cut_scores, shift_scores
from prunus.methods.common.costs import MultiplyAdds
from prunus.methods.common.families import Freezable, Penalised, Rewinding, check_reachable
from prunus.methods.common.schedules import cubic
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import DENSITY, Must, check, setting
from prunus.selection import Candidate

PAPER_STEPS = 85 * 391
"""Steps of one round in the paper: 85 epochs of CIFAR-10 in batches of 128."""

_SETTLED = 0.8
"""The part of a round after which a density that was asked for is reached."""

_SHIFTS = 200
"""How often in a round the scores are shifted to meet the density of the moment."""


class ContinuousSparsification(Rewinding, Freezable, Penalised[SigmoidGate]):
    """Learn a binary mask by gradient descent on `L(f(.; sigmoid(beta*s) * w)) + lambda*||m||_1`.

    Attach it to any model, then train with `param_groups`, add `penalty()` to the loss and call
    `step()` after each optimiser step. Over the `steps` (`T`) of a round the temperature `beta`
    rises from 1 to `final_temperature` (`beta_T`) as `beta_T ** (t/T)`.

    Two settings decide how many weights are kept. `mask_init` (`s0`), where scores start: lower
    keeps fewer. Or `target_density`, which the search ends at, to the nearest weight (with coarser
    `granularity`: missed by half of the largest gate at most). The threshold that scores must
    exceed then follows their quantile: `sigmoid(beta*(s - tau_t))`, where `tau_t` leaves a density
    that falls from 1 to the target over the first 80 % of the round.
    """

    name = "cs"
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
    target_density: float | Sequence[float] | None = setting(
        "instead of `mask_init`, the density to end at; or one for each round, so that one search "
        "finds tickets of several densities",
        default=None,
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
    granularity: Granularity = setting("how many weights share a gate", default="weight")
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

    def prepare(self) -> None:
        check(
            self.anneal_every == 1 or 1 < self.anneal_every <= self.steps // 2,
            f"anneal_every={self.anneal_every} is not between 1 and half of the {self.steps} steps "
            "a round",
        )
        self.targets = _targets(self.target_density)
        check(
            not self.targets or self.mask_init == 0,
            f"mask_init={self.mask_init} and target_density={self.target_density} are two ways to "
            "say how many weights to keep: give one of them",
        )
        self.target_density = self.targets[0] if len(self.targets) == 1 else self.targets or None

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
        if self.targets and rounds > len(self.targets):
            path = [f"{self.targets[-1] ** (n / rounds):.3g}" for n in range(1, rounds + 1)]
            warn(
                f"target_density={self.target_density} with {rounds} rounds: those after round "
                f"{len(self.targets)} hardly change the mask. Do fewer rounds, or give a "
                f"density for each, such as [{', '.join(path)}]",
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
        self._costs: Mapping[str, float] | None = None
        self._counting = MultiplyAdds(self.selection) if self.penalty_cost == "macs" else None

    def param_groups(
        self,
        lr: float,
        *,
        score_lr: Annotated[
            float | None, "learning rate of the scores (None: grows as rounds get shorter)"
        ] = None,
        **options: Any,
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

    def penalty_terms(self) -> Iterator[Tensor]:
        """`||sigmoid(beta*s)||_1`; cheapest after the forward pass of the same step."""
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
            levels = self.steps // self.anneal_every
            progress = (self.t // self.anneal_every) / (levels - 1)
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


def _targets(target_density: float | Sequence[float] | None) -> list[float]:
    """The density of each round; none if there is no budget."""
    if target_density is None:
        return []
    targets = list(target_density) if isinstance(target_density, Sequence) else [target_density]
    check(bool(targets), "target_density is an empty list: give a density for each round")
    for target in targets:
        DENSITY.check("target_density", target)
    check(
        targets == sorted(targets, reverse=True),
        f"target_density={targets}: a round cannot keep more than the one before it",
    )
    return targets
