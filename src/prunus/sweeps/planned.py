"""The runs of a plan: ready to start, or waiting for what another run finds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from prunus.runs.rates import rates_of
from prunus.runs.results import ticket_path
from prunus.runs.settings import RunSettings, resolve
from prunus.runs.settings_file import merge
from prunus.tasks import load_task

load_cached = lru_cache(maxsize=2)(load_task)
"""Runs of one task follow each other in a plan, and share its data."""


@dataclass(frozen=True)
class PlannedRun:
    """One run in one row of the tables. Runs of two rows that are the same share a folder."""

    id: str
    command: str
    task: str
    method: str | None
    row: str
    parameters: Mapping[str, Any]
    seed: int
    epochs: int
    """Estimate of the epochs it trains."""

    @property
    def key(self) -> str:
        """What it computes, by settings and seed: the id without the row."""
        return self.id.removeprefix(f"{self.row}/")


@dataclass(frozen=True)
class Ready(PlannedRun):
    """A run whose settings are complete."""

    settings: RunSettings
    needs: ClassVar[None] = None
    stage: ClassVar[None] = None


@dataclass(frozen=True)
class _Awaits(PlannedRun, ABC):
    """A run whose settings are complete once another run is finished."""

    given: Mapping[str, Any]
    """Its settings so far, as `resolve` takes them."""
    needs: str
    """The id of the other run."""

    def settle(self, needed: Path) -> RunSettings:
        """Complete settings, from the finished run in the folder `needed`."""
        return resolve(self.command, merge(self.given, self._found(needed)), load=load_cached)[0]

    @abstractmethod
    def _found(self, needed: Path) -> dict[str, Any]: ...


@dataclass(frozen=True)
class AwaitsTicket(_Awaits):
    """A re-training of the ticket that another run leaves."""

    stage: str
    """The stage of the other run whose ticket it takes."""

    def _found(self, needed: Path) -> dict[str, Any]:
        return {"ticket": str(needed / ticket_path(self.stage))}


@dataclass(frozen=True)
class AwaitsRates(_Awaits):
    """A search that removes as much in each round as another one did."""

    even: bool
    """Whether it removes the same fraction in each of its own rounds, and as much in all."""
    stage: ClassVar[None] = None

    def _found(self, needed: Path) -> dict[str, Any]:
        rates = rates_of(needed)
        if self.even:
            kept, rounds = math.prod(1 - rate for rate in rates), self.given["rounds"]
            rates = [1 - kept ** (1 / rounds)] * rounds
        return {"method": {"rate": rates}}


Planned = Ready | AwaitsTicket | AwaitsRates


def describe(run: Planned) -> str:
    """A run in words: its task, its row, and its settings there."""
    parts = [f"{name}={value}" for name, value in run.parameters.items()]
    if isinstance(run, AwaitsTicket):
        parts.append(f"{run.stage} re-trained")
    elif run.command == "prune":
        parts.append("pruned")
    return " ".join([run.task, run.row, *parts, f"seed {run.seed}"])
