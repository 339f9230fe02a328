"""Methods that keep what fits into a budget: of weights, of multiply-adds, or in every group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from prunus.gates import layout
from prunus.methods.base import Method
from prunus.methods.common.competition import Budget, Scope
from prunus.methods.common.costs import MultiplyAdds
from prunus.methods.common.ranking import Masks, Ranks, keep_budget
from prunus.methods.common.targets import budgets, check_affordable, check_targets
from prunus.methods.hooks import G
from prunus.methods.settings import DENSITY, MACS, Must, check, setting


class Counting(Method[G]):
    """Methods to which it may matter how often each weight is used for one input."""

    @property
    def counts_macs(self) -> bool:
        """Whether it matters how often each weight is used."""
        raise NotImplementedError

    def check_costs(self, costs: Mapping[str, float]) -> None:
        """Raise `SettingError` if what was asked for cannot be had; as soon as costs are known."""

    def on_attach(self) -> None:
        super().on_attach()
        self._counter = MultiplyAdds(self.model, self.selection) if self.counts_macs else None
        self._affordable = False  # not checked yet

    def costs(self) -> Mapping[str, float]:
        """The multiply-adds of a weight of each parameter, in units of the mean over all weights.

        Empty if they do not matter. They are known from the first forward pass on.
        """
        if self._counter is None:
            return {}
        costs = self._counter.factors()
        if not self._affordable:
            self.check_costs(costs)
            self._affordable = True
        return costs

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        return state if self._counter is None else {**state, "costs": self._counter.known}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self._counter is not None:
            self._counter.known = state["costs"]


class RanksWeights(Counting[G]):
    """Methods that keep the weights of highest rank."""

    target_density: float | None = setting(
        "the fraction of weights to keep (0.1 unless there is another budget)",
        default=0.1,
        must=Must(lambda value: value is None or DENSITY.hold(value), DENSITY.says),
    )
    target_macs: float | None = setting(
        "instead of `target_density` or with it, the fraction of the multiply-adds (of the "
        "selected layers) to keep",
        default=None,
        must=MACS,
        added=True,
    )
    granularity: str = setting(
        '"weight", or a pattern such as "2:4": of 4 neighbouring inputs 2 are kept',
        default="weight",
        added=True,
    )
    scope: Scope = setting(
        "where weights compete: in the whole network or in each layer", default="global", added=True
    )

    @classmethod
    def complete(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Without the default `target_density` where another budget is given."""
        pattern = given.get("granularity", "weight") != "weight"
        another = pattern or given.get("target_macs") is not None
        return {"target_density": None, **given} if another else given

    @property
    def counts_macs(self) -> bool:
        return self.target_macs is not None

    def check_gates(self) -> None:
        self._layouts = {c.name: layout(c, self.granularity) for c in self.selection}
        check(
            all(of.weights_per_gate == 1 for of in self._layouts.values()),
            f"granularity={self.granularity!r}: {self.name} ranks single weights, so it is "
            "'weight' or a pattern such as '2:4'",
        )
        targets = budgets(self.target_density, self.target_macs, self.scope, self.granularity)
        check(bool(targets), "there is no budget: give a target_density or a target_macs")
        check_targets(self._layouts, targets)
        [self.budget] = targets

    def check_costs(self, costs: Mapping[str, float]) -> None:
        check_affordable(self._layouts, [self.budget], costs)

    def keep(self, ranks: Ranks, mask: Masks | None, budget: Budget) -> dict[str, Tensor]:
        """The highest ranks within `budget`, of those that `mask` keeps."""
        patterns = {name: of.pattern for name, of in self._layouts.items() if of.pattern}
        return keep_budget(
            ranks, mask, budget, scope=self.scope, patterns=patterns, costs=self.costs()
        )
