"""Scores that belong to the method: with a budget `step` moves them, and there is no rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prunus.gates import SigmoidGate
from prunus.methods.common.budget import move_scores, nearest, spread
from prunus.methods.common.schedules import cosine

_SOFT = 0.001
"""`beta` in units of the scores' spread when a round begins."""

_UNDECIDED = 0.02
"""How many gates may be in transition in the end, for each that is kept."""

_DECIDED = 5.0
"""The `beta*s` of a gate that is no longer in transition."""

_SHARPEST = 1e4
"""How many times larger than `beta_T` the temperature may become for that."""


@dataclass
class OwnScores:
    """How they move, and the temperature that goes with them; `progress` is `t/T`.

    With `u = beta*s`,

        s <- s - beta_T^(t/T) * (1 + cos(pi*t/T))/2 * dL/du,     beta = beta_T/10 * (t/T)^6 / z,

    where `z` is the spread of the scores, the median of those above zero. In the last tenth of the
    round `beta` rises tenfold more, to `beta_T / z`; and further if that leaves many in transition.
    """

    spread: float = 1.0
    """`z`."""
    sharper: float = 1.0
    """How many times larger than `beta_T` the last temperature is."""
    idle: int = 0
    """Steps of this round in which there was no gradient."""

    def move(self, gates: Sequence[SigmoidGate], beta_end: float, progress: float) -> None:
        """Take one step, and clear the gradients."""
        # As in the paper: dL/ds is beta * dL/du, and the rate falls to zero.
        if not move_scores(gates, cosine(beta_end**progress, progress)):
            self.idle += 1

    def measure(self, gates: Sequence[SigmoidGate], beta_end: float, progress: float) -> None:
        """Find the unit of scores, which have just been shifted to meet their budget."""
        self.spread = spread(gates)
        if _late(progress):
            wanted = _DECIDED / max(nearest(gates, _UNDECIDED), 1e-30)
            self.sharper = min(max(1.0, wanted * self.spread / beta_end), _SHARPEST)

    def temperature(self, beta_end: float, progress: float) -> float:
        """`beta`, for scores as they are."""
        beta = _SOFT + beta_end * progress**6 / 10 ** min(1.0, 10 * (1 - progress))
        sharpened: float = beta * self.sharper ** _late(progress)
        return sharpened / self.spread

    def end_round(self) -> None:
        """Forget what was of this round alone."""
        self.sharper, self.idle = 1.0, 0

    def state_dict(self) -> dict[str, Any]:
        """All there is to know."""
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take it from `state`; an older one may have less."""
        for name, default in asdict(OwnScores()).items():
            setattr(self, name, state.get(name, default))


def _late(progress: float) -> float:
    """From 0 to 1 over the last tenth of a round."""
    return max(0.0, 10 * progress - 9)
