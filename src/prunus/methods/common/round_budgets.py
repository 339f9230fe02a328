"""Methods whose rounds each end at a budget, met by thresholds that their scores compete under."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prunus.errors import warn_caller
from prunus.gates import Granularity, Layout, SigmoidGate, parse_pattern
from prunus.methods.common.budget import competition_of, cut_scores, shift_scores
from prunus.methods.common.budgeted import Counting
from prunus.methods.common.competition import EVERYTHING, Budget, Competition, Scope
from prunus.methods.common.targets import (
    Fractions,
    as_settings,
    budgets,
    check_affordable,
    check_targets,
)
from prunus.methods.settings import check, setting

_SETTLED = 0.8
"""The part of a round after which a density that was asked for is reached."""


class RoundBudgets(Counting[SigmoidGate]):
    """The budget of each round; `targets` is empty if there is none."""

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
    granularity: Granularity = setting(
        "how many weights share a gate; or a pattern such as 2:4, which is a budget as well",
        default="weight",
    )

    def prepare(self) -> None:
        super().prepare()
        self.targets = budgets(self.target_density, self.target_macs, self.scope, self.granularity)
        self.target_density, self.target_macs = as_settings(self.targets)

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
            warn_caller(
                f"{self._budget} with {rounds} rounds: those after round {len(self.targets)} "
                f"hardly change the mask. Do fewer rounds, or give one for each, such as "
                f"[{', '.join(path)}]",
            )

    def meet_budget_of_now(self) -> None:
        """Shift the scores: the budget falls over the first 80 % of a round to that of its end."""
        start, end = self._target(self.round - 1), self._target(self.round)
        now = start.towards(end, self.t / (_SETTLED * self.steps))
        shift_scores(list(self.gates.values()), now, self._competition())

    def meet_budget_of_round(self) -> None:
        """Shift the scores to the budget that this round ends at, exactly."""
        cut_scores(list(self.gates.values()), self._target(self.round), self._competition())

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


def has_budget(settings: Mapping[str, Any]) -> bool:
    """Whether these settings of a method make `targets`; what is left out has its default."""
    given = (settings.get(name) for name in ("target_density", "target_macs"))
    pattern = parse_pattern(settings.get("granularity", "weight"))
    return pattern is not None or any(value is not None for value in given)
