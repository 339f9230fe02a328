"""What the paper says of an experiment, as data of its recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from prunus.schema import Schema

Percent = Annotated[float, Field(ge=0, le=100)]
Pick = Literal["dense", "sparsest matching", "best performing", "sparsest within 2 %", "nearest"]
"""Which of our subnetworks a number is to be compared with. `nearest`: the one of its density."""


class PaperNumber(Schema):
    """One line of a table, or a number of the text, in per cent as it is printed."""

    task: str
    pick: Pick = "nearest"
    row: str | None = None
    """The recipe's row of the same method; none for the dense network."""
    round: int | None = None
    kept: Percent | None = None
    sparsity: Percent | None = None
    accuracy: Percent | None = None

    @model_validator(mode="after")
    def _has_one_density(self) -> Self:
        if self.kept is not None and self.sparsity is not None:
            raise ValueError("kept and sparsity say the same: give one of them")
        if (self.row is None) != (self.pick == "dense"):
            raise ValueError("a number is of a row, unless it is that of the dense network")
        if self.pick == "nearest" and self.density is None:
            raise ValueError("the nearest subnetwork needs kept or sparsity")
        return self

    @property
    def density(self) -> float | None:
        """As a fraction."""
        if self.pick == "dense":
            return 1.0
        if self.sparsity is not None:
            return (100 - self.sparsity) / 100
        return None if self.kept is None else self.kept / 100


class Paper(Schema):
    """Numbers and claims of the paper, and where they stand."""

    where: str
    """Such as `Table 1 and figure 1, section 5.1`."""
    claims: tuple[str, ...] = ()
    """What the text and the captions say, in a sentence each."""
    numbers: tuple[PaperNumber, ...] = ()
    blocks: int | None = Field(default=None, ge=1)
    """Whether it looks at blocks of so many consecutive layers."""

    def standing_in(self, stand_ins: Mapping[str, str]) -> Paper:
        """The same numbers beside other tasks."""
        numbers = tuple(
            number.model_copy(update={"task": stand_ins.get(number.task, number.task)})
            for number in self.numbers
        )
        return self.model_copy(update={"numbers": numbers})
