"""Iterative Magnitude Pruning (algorithm 1 of the paper), with rewinding and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from prunus.masks import Mask
from prunus.methods.common.competition import Scope
from prunus.methods.common.families import FixedMaskMethod, Rewinding
from prunus.methods.common.ranking import magnitudes, remove_lowest
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Must, check, setting
from prunus.selection import KINDS, Selection

Rate = float | Mapping[str, float] | Sequence[float]
"""A fraction; one for each kind of layer (`{"conv": 0.15, "linear": 0.2}`); one for each round."""

RATE = Must(lambda rate: 0 < rate < 1, "the fraction removed in each round is between 0 and 1")


class ContinuedMagnitudePruning(FixedMaskMethod):
    """IMP-C: in each round train, and remove the smallest of the weights that are left.

    That is the fraction `rate` (`tau`) with the smallest magnitude in the whole network. The others
    train on from where they are.
    `rate` is a number; or a number for each kind of layer, `{"conv": 0.15, "linear": 0.2}`
    (appendix D): then weights compete within their kind only; or a sequence of numbers, one for
    each round, to copy the densities of another search (appendix E). With `scope="layer"` weights
    compete within their layer only. Tickets start from `w^(k)` in any case.
    """

    name = "imp-c"

    rate: Rate = setting("the fraction of the remaining weights that a round removes", default=0.2)
    scope: Scope = setting(
        "where weights compete: in the network (with rates by kind: in the kind) or in each layer",
        default="global",
        added=True,
    )

    def prepare(self) -> None:
        _check_rate(self.rate)

    def check_gates(self) -> None:
        if isinstance(self.rate, Mapping):
            _check_kinds(self.rate, self.selection)

    def check_rounds(self, rounds: int) -> None:
        if isinstance(self.rate, Sequence):
            check(
                rounds <= len(self.rate),
                f"round {rounds} has no rate: rate={list(self.rate)} is for {len(self.rate)} "
                "rounds; give it more numbers, or do fewer rounds",
            )

    def step(self) -> None:
        if not self.hardened:
            self.check_rounds(self.round)
        super().step()

    def _decide(self, evaluate: Evaluate | None) -> None:
        self.check_rounds(self.round)
        super()._decide(evaluate)

    def on_commit(self, _: Evaluate | None) -> Mask:
        ranks, mask = magnitudes(self.weights), self.mask()
        remaining: dict[str, Tensor] = {}
        for names, rate in self._cuts():
            remaining |= remove_lowest({name: ranks[name] for name in names}, mask, rate)
        return Mask(remaining)

    def _cuts(self) -> list[tuple[list[str], float]]:
        """Which weights compete in this round, and the fraction of them to remove."""
        if isinstance(self.rate, Mapping):
            cuts = [
                ([c.name for c in self.selection if c.kind == kind], rate)
                for kind, rate in self.rate.items()
            ]
        else:
            rate = self.rate[self.round - 1] if isinstance(self.rate, Sequence) else self.rate
            cuts = [(list(self.gates), rate)]
        if self.scope == "layer":
            cuts = [([name], rate) for names, rate in cuts for name in names]
        return cuts


class IterativeMagnitudePruning(Rewinding, ContinuedMagnitudePruning):
    """IMP: the rounds of IMP-C, and after each the remaining weights return to `w^(k)`."""

    name = "imp"

    rewinds = True


def _check_rate(rate: Rate) -> None:
    if not isinstance(rate, Mapping | Sequence):
        RATE.check("rate", rate)
        return
    plain = dict(rate) if isinstance(rate, Mapping) else list(rate)
    rates = list(rate.values()) if isinstance(rate, Mapping) else list(rate)
    check(bool(rates), f"rate={plain} is empty: give the fraction that a round removes")
    for value in rates:
        check(
            isinstance(value, int | float) and 0 <= value < 1,
            f"rate={plain}: {value!r} is not a fraction to remove, from 0 to below 1",
        )


def _check_kinds(rates: Mapping[str, float], selection: Selection) -> None:
    chosen = {c.kind for c in selection}
    for kind in rates:
        check(
            kind in chosen,
            f"rate has {kind!r}, but no weight of that kind is selected (there are: "
            f"{', '.join(sorted(chosen))}; known kinds: {', '.join(KINDS)}); leave it out, or "
            "select more, such as select='all'",
        )
    for kind in sorted(chosen):
        check(
            kind in rates,
            f"rate={dict(rates)} has no {kind!r}, but weights of that kind are selected; give it "
            "a fraction (0 removes none of them)",
        )
