"""The rates at which a search removed weights, for another search to do the same (appendix E)."""

from __future__ import annotations

from pathlib import Path

from prunus.errors import SettingError
from prunus.runs.results import read_results


def rates_of(folder: Path) -> list[float]:
    """The fraction of the remaining weights that each round of the finished search removed.

    Rounds of CS may also keep more weights than the one before. IMP cannot, so such a round has
    rate 0, and the following ones count from the fewest weights so far.
    """
    results = read_results(folder)
    if results is None:
        raise SettingError(f"{folder} is not the folder of a run: it has no results.json")
    if results.command != "search" or not results.finished:
        raise SettingError(
            f"{folder} has no rates to copy: it is not a finished search (command "
            f"{results.command}, finished: {results.finished})"
        )
    rates, before = [], 1.0
    for stage in results.stages:
        if stage.density <= 0:
            raise SettingError(f"{stage.stage} of {folder} keeps no weight: no rate does that")
        rates.append(max(0.0, 1 - stage.density / before))
        before = min(before, stage.density)
    return rates
