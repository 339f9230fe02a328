"""How fast the networks of a run are: the file `speed.json`, measured after the run.

It stands beside the results, because equal runs on different machines differ in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from prunus.files import parse_json, read_text, write_json
from prunus.schema import Schema

SPEED = "speed.json"


class Speed(Schema):
    """What was measured of one network, in turns with the dense one, in samples a second."""

    batch: int = Field(ge=1)
    threads: int
    deployed: float = Field(gt=0)
    dense: float = Field(gt=0)
    engine: str
    """What ran the dense network."""
    processor: str
    predicted: float | None = Field(default=None, gt=0)
    """How many times as fast as the dense network it was to be, if a speed-up was asked for."""

    @property
    def speedup(self) -> float:
        """How many times as fast as the dense network."""
        return self.deployed / self.dense


class RunSpeeds(Schema):
    """The content of `speed.json`."""

    version: Literal[1] = 1
    stages: dict[str, tuple[Speed, ...]] = Field(default_factory=dict)
    """Stage -> the speeds of its network."""

    def of(self, stage: str, batch: int) -> Speed | None:
        """What was measured of a stage's network, if it was."""
        found = (speed for speed in self.stages.get(stage, ()) if speed.batch == batch)
        return next(found, None)

    def with_speed(self, stage: str, speed: Speed) -> RunSpeeds:
        """These and one more; one of the same batch is replaced."""
        others = [s for s in self.stages.get(stage, ()) if s.batch != speed.batch]
        own = tuple(sorted([*others, speed], key=lambda s: s.batch))
        return self.model_copy(update={"stages": {**self.stages, stage: own}})


def read_speeds(folder: Path) -> RunSpeeds:
    """What is known of a run's networks; nothing, if nothing readable says so."""
    try:
        return RunSpeeds.parse(parse_json(read_text(folder / SPEED)))
    except (OSError, ValueError):  # a SettingError is a ValueError
        return RunSpeeds()


def write_speeds(folder: Path, speeds: RunSpeeds) -> Path:
    """Write `speed.json`."""
    return write_json(folder / SPEED, speeds.model_dump(mode="json"))
