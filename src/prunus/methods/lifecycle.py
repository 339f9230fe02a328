"""Where a method stands in its life, from attaching to the final mask.

              commit           end_round
SEARCHING ------------> COMMITTED -----------> BETWEEN_ROUNDS      harden (from any): HARDENED
    ^                       |                        |
    +-------- step ---------+--------- step ---------+
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Self


class Moment(Enum):
    """What decides the mask: the gates, or a mask that the method has committed to and holds."""

    SEARCHING = "searching"
    """The gates decide."""
    COMMITTED = "committed"
    """The mask of this round is held, until the next step."""
    BETWEEN_ROUNDS = "between rounds"
    """The mask of the last round is held, until the next step; the gates are ready for the next."""
    HARDENED = "hardened"
    """The mask is held for good. There are no more rounds."""


@dataclass
class LifeCycle:
    """The state of a method. Every change has a name here."""

    round: int = 1
    """The round that is under way or, between two, the next; the first is 1."""
    t: int = 0
    """Steps of this round."""
    moment: Moment = Moment.SEARCHING
    rewound: bool = False
    """Whether the weights went back to `w^(k)` after the last step."""

    @property
    def last_round(self) -> int:
        """The round that the mask belongs to: between two, the one that has ended."""
        return self.round - 1 if self.t == 0 and self.round > 1 else self.round

    @property
    def holds_mask(self) -> bool:
        """Whether the mask is one that the method has committed to."""
        return self.moment is not Moment.SEARCHING

    def step(self) -> None:
        self.t += 1
        self.moment, self.rewound = Moment.SEARCHING, False

    def commit(self) -> None:
        self.moment = Moment.COMMITTED

    def end_round(self) -> None:
        self.round, self.t = self.round + 1, 0
        self.moment = Moment.BETWEEN_ROUNDS

    def rewind(self) -> None:
        self.rewound = True

    def harden(self) -> None:
        self.moment = Moment.HARDENED

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for checkpoints."""
        return {**asdict(self), "moment": self.moment.value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return cls(**{**data, "moment": Moment(data["moment"])})
