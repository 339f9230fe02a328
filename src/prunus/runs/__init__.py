"""Runs: what `train`, `search`, `prune` and `retrain` do, in a folder, and resumable."""

from prunus.runs.rates import rates_of
from prunus.runs.settings import RunSettings, complete_rounds, resolve
from prunus.runs.stages import execute

__all__ = ["RunSettings", "complete_rounds", "execute", "rates_of", "resolve"]
