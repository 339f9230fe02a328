"""Iterative Magnitude Pruning (algorithm 1 of the paper), with rewinding and without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from prunus.gates import check_attachable
from prunus.masks import Mask
from prunus.methods.base import Evaluate
from prunus.methods.checks import check
from prunus.methods.fixed import FixedMaskMethod
from prunus.methods.ranking import magnitudes, remove_lowest
from prunus.selection import KINDS, Select, Selection, choose

Rate = float | Mapping[str, float] | Sequence[float]
"""One fraction; one for each kind of layer (`{"conv": 0.15, "linear": 0.2}`); or one a round."""


class IterativeMagnitudePruning(FixedMaskMethod):
    """Each round: train, remove the fraction `rate` (`tau`) of the remaining weights that have the
    smallest magnitude in the whole network, and rewind the rest to `w^(k)`.

    `rate` is a number; or numbers by kind of layer, `{"conv": 0.15, "linear": 0.2}`: then weights
    compete within their kind only (appendix E); or a sequence of numbers, one a round, to copy the
    densities of another search (appendix F). With `rewind=False` this is IMP-C.
    """

    name = "imp"

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        rate: Rate = 0.2,
        select: Select = "paper",
        rewind_step: int | None = 0,
        rewind: bool = True,
    ) -> None:
        self.rate = _checked(rate)
        if isinstance(self.rate, dict):
            check_attachable(model)
            _check_kinds(self.rate, choose(model, select))
        super().__init__(model, steps=steps, select=select, rewind_step=rewind_step, rewind=rewind)

    def check_rounds(self, rounds: int) -> None:
        if isinstance(self.rate, list):
            check(
                rounds <= len(self.rate),
                f"round {rounds} has no rate: rate={self.rate} is for {len(self.rate)} rounds; "
                "give it more numbers, or do fewer rounds",
            )

    def step(self) -> None:
        if not self.hardened:
            self.check_rounds(self.round)
        super().step()

    def _decide(self, evaluate: Evaluate | None) -> None:
        self.check_rounds(self.round)
        super()._decide(evaluate)

    def on_commit(self, _: Evaluate | None) -> Mask:
        ranks, mask = magnitudes(self.model), self.mask()
        kept: dict[str, Tensor] = {}
        for names, rate in self._cuts():
            kept |= remove_lowest({name: ranks[name] for name in names}, mask, rate)
        return Mask(kept)

    def _cuts(self) -> Iterator[tuple[list[str], float]]:
        """Which weights compete in this round, and the fraction of them to remove."""
        if isinstance(self.rate, dict):
            for kind, rate in self.rate.items():
                yield [c.name for c in self.selection if c.kind == kind], rate
        else:
            rate = self.rate[self.round - 1] if isinstance(self.rate, list) else self.rate
            yield list(self.gates), rate

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "rate": self.rate}


class ContinuedMagnitudePruning(IterativeMagnitudePruning):
    """IMP without rewinding between rounds (IMP-C): the weights train on from where they are.

    Tickets start from `w^(k)` all the same.
    """

    name = "imp-c"

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        rate: Rate = 0.2,
        select: Select = "paper",
        rewind_step: int | None = 0,
    ) -> None:
        super().__init__(
            model, steps=steps, rate=rate, select=select, rewind_step=rewind_step, rewind=False
        )


def _checked(rate: Rate) -> float | dict[str, float] | list[float]:
    """`rate` as plain data."""
    if isinstance(rate, Mapping):
        plain: dict[str, float] | list[float] = dict(rate)
        rates = list(rate.values())
    elif isinstance(rate, Sequence):
        plain = rates = list(rate)
    else:
        check(0 < rate < 1, f"rate={rate}: the fraction removed a round is between 0 and 1")
        return rate
    check(bool(rates), f"rate={plain} is empty: give the fraction removed a round")
    for value in rates:
        check(
            isinstance(value, int | float) and 0 <= value < 1,
            f"rate={plain}: {value!r} is not a fraction to remove, from 0 to below 1",
        )
    return plain


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
