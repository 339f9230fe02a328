"""One run of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from prunus.search.rates import rates_of
from prunus.search.settings import RunSettings, resolve
from prunus.search.settings_file import merge
from prunus.tasks import load_task

load_cached = lru_cache(maxsize=2)(load_task)
"""Runs of one task follow each other in a plan, and need not all read its data."""


@dataclass(frozen=True)
class Planned:
    """One run, as a line of the tables knows it. Two lines may share a run: its folder tells."""

    id: str
    command: str
    task: str
    method: str | None
    row: str
    parameters: Mapping[str, Any]
    seed: int
    given: Mapping[str, Any]
    epochs: int
    """To be trained, about."""
    settings: RunSettings | None = None
    """Complete, unless they depend on what another run finds."""
    needs: str | None = None
    """The id of that run."""
    takes: Literal["ticket", "rates"] | None = None
    stage: str | None = None
    """The stage of that run whose ticket this one takes."""

    def settle(self, needed: Path | None) -> RunSettings:
        """Complete settings, once the run in the folder `needed` is finished."""
        if self.settings is not None:
            return self.settings
        assert needed is not None
        if self.takes == "ticket":
            assert self.stage is not None
            path = needed / "tickets" / f"{self.stage.replace(' ', '-')}.safetensors"
            more: dict[str, Any] = {"ticket": str(path)}
        else:
            more = {"method": {"rate": rates_of(needed)}}
        return resolve(self.command, merge(self.given, more), load=load_cached)[0]
