"""A method without a target density, brought to one: whole runs over the setting that governs it.

The density grows from one end of the setting to the other (`Method.governed`), so a pair of runs
around the target narrows down where it is met; interpolation makes that few runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from prunus.errors import PrunusError, SettingError
from prunus.lookup import trusted_names
from prunus.methods import METHODS, Governed, describe_settings, find_method
from prunus.methods.settings import DENSITY, Must
from prunus.runs.results import RunResults
from prunus.runs.settings import RunSettings, resolve
from prunus.runs.stages import execute
from prunus.sweeps.work import run_one

Densities = Callable[[Sequence[float]], Sequence[float]]
"""The density that a whole run ends at, for each of several values of the setting."""

TOLERANCE = 0.03
"""How far from the target a run may end, relative to it, unless somebody says otherwise."""

_POSITIVE = Must(lambda value: 0 < value < math.inf, "it must be a positive number")
_REACH = 4.0
"""How far beyond `few` and `many` values are tried, in units of the distance between them."""
_NOTHING = 1e-6
"""Stands for a density of zero, which has no logarithm."""


class UnreachedError(PrunusError, RuntimeError):
    """A density that no value of the setting reaches, as the runs have shown."""

    status = 1


@dataclass(frozen=True)
class Trial:
    """A run with one value of the setting, and the density that it ended at."""

    value: float
    density: float
    network_density: float | None = None
    """The same of all weights of the network, where that is known."""


@dataclass(frozen=True)
class Bisection:
    """The run nearest to the target, and all that were tried, those that keep fewest first."""

    setting: str
    best: Trial
    trials: tuple[Trial, ...]
    target_density: float
    tolerance: float

    @property
    def error(self) -> float:
        """How far the best run is from the target, relative to it."""
        return abs(self.best.density / self.target_density - 1)

    @property
    def near_enough(self) -> bool:
        """Whether the best run is within the tolerance that was asked for."""
        return self.error <= self.tolerance


def find_setting(
    governed: Governed,
    densities: Densities,
    target_density: float,
    *,
    tolerance: float = TOLERANCE,
    at_once: int = 1,
    max_runs: int = 12,
) -> Bisection:
    """The value of the `governed` setting whose run ends nearest to `target_density`.

    `densities` does a run with each of the given values; it gets `at_once` of them at a time (two
    at first, at least), so that it may do them side by side. Begins with `few` and `many`, and
    moves outwards if the target is not between them. Ends within `tolerance` of the target,
    relative to it, or after about `max_runs` runs. A target that no value reaches is an error.
    """
    DENSITY.check("target_density", target_density)
    _POSITIVE.check("tolerance", tolerance)
    if at_once < 1 or max_runs < 2:
        raise SettingError(f"at_once={at_once} and max_runs={max_runs}: need at least 1 and 2 runs")
    trials: list[Trial] = []

    def run(positions: Sequence[float]) -> bool:
        """Whether there was anything to do: two positions can round to the same value."""
        before = {trial.value for trial in trials}
        values = sorted({governed.value(at) for at in positions} - before, key=governed.position)
        trials.extend(map(Trial, values, densities(values)))
        trials.sort(key=lambda trial: governed.position(trial.value))
        return bool(values)

    def found() -> Bisection:
        best = min(trials, key=lambda trial: abs(trial.density - target_density))
        return Bisection(governed.setting, best, tuple(trials), target_density, tolerance)

    first = max(2, at_once)
    run([number / (first - 1) for number in range(first)])
    while not found().near_enough and len(trials) < max_runs:
        if not run(_next(governed, trials, target_density, at_once)):
            break
    return found()


def _next(
    governed: Governed, trials: Sequence[Trial], target_density: float, number: int
) -> list[float]:
    """The most promising positions, that many.

    The first is where the line through the two nearest trials meets the target, in the logarithm of
    the density. If it does not, between the trials around the target, it is the middle of these;
    outwards, as far again as the trials reach.
    """
    points = [(governed.position(t.value), _excess(t.density, target_density)) for t in trials]
    (lowest, _), (highest, _) = points[0], points[-1]
    below = max((at for at, excess in points if excess < 0), default=None)
    above = min((at for at, excess in points if excess >= 0), default=None)
    promising: list[float] = []
    if below is None:
        below = max(2 * lowest - highest, -_REACH)
        promising.append(below)
    elif above is None:
        above = min(2 * highest - lowest, 1 + _REACH)
        promising.append(above)
    assert above is not None
    below, above = sorted((below, above))  # in disorder where the densities are
    tried = {trial.value: trial for trial in trials}
    if promising and (outermost := tried.get(governed.value(promising[0]))):
        raise UnreachedError(
            f"no {governed.setting} reaches target_density={target_density:g}: "
            f"{governed.setting}={outermost.value:g} still ends at {outermost.density:.4g}. Use "
            "more epochs, or a method with a target_density (such as cs), which reaches any"
        )
    (at, excess), (other, its_excess) = sorted(points, key=lambda point: abs(point[1]))[:2]
    if excess != its_excess:
        guess = at - excess * (other - at) / (its_excess - excess)
        if below < guess < above and governed.value(guess) not in tried:
            promising.insert(0, guess)
    while len(promising) < number:
        ends = sorted({below, above, *promising})
        start, end = max(pairwise(ends), key=lambda gap: gap[1] - gap[0])
        promising.append((start + end) / 2)
    return promising[:number]


def _excess(density: float, target_density: float) -> float:
    return math.log(max(density, _NOTHING) / target_density)


def bisect_runs(
    command: str,
    given: Mapping[str, Any],
    target_density: float,
    *,
    fetch_missing: bool = False,
    executor: Executor | None = None,
    tell: Callable[[str, Trial], None] | None = None,
    **options: Any,
) -> tuple[Bisection, RunSettings, RunResults]:
    """`find_setting` with runs in their own folders: none is repeated, all can be resumed.

    With an `executor`, runs go side by side: give `at_once` too. `tell` is called with the setting
    and each run that ended.
    Returns what was found, with the settings and results of the best run.
    """
    method = given.get("method") or {}
    method = {"name": method} if isinstance(method, str) else {"name": "cs", **method}
    governed = _governed(method)
    runs: dict[float, RunSettings] = {}
    done: dict[float, RunResults] = {}

    def densities(values: Sequence[float]) -> list[float]:
        futures: dict[Future[RunResults], float] = {}
        for value in values:
            settings = {**given, "method": {**method, governed.setting: value}}
            runs[value], task = resolve(command, settings, fetch_missing=fetch_missing)
            if executor is None:
                note(value, execute(runs[value], task))
            else:
                complete = runs[value].model_dump(mode="json")
                future = executor.submit(run_one, complete, trusted=trusted_names())
                futures[future] = value
        for future in as_completed(futures):
            note(futures[future], future.result())
        return [done[value].stages[-1].density for value in values]

    def note(value: float, results: RunResults) -> None:
        done[value] = results
        if tell is not None:
            tell(governed.setting, ended(value))

    def ended(value: float) -> Trial:
        last = done[value].stages[-1]
        return Trial(value, last.density, last.network_density)

    found = find_setting(governed, densities, target_density, **options)
    best = found.best.value
    trials = tuple(ended(trial.value) for trial in found.trials)
    return replace(found, best=ended(best), trials=trials), runs[best], done[best]


def _governed(settings: Mapping[str, Any]) -> Governed:
    """What governs the density of a method, whose settings must not say it themselves."""
    name = settings["name"]
    kind = find_method(name)
    defaults = {setting.name: setting.default for setting in describe_settings(kind)}
    if kind.governed is None:
        why = "no setting of it alone governs the density"
        if "target_density" in defaults:
            why = "it ends at its target_density in one run, without bisection"
        able = [known for known, method in METHODS.items() if method.governed is not None]
        raise SettingError(f"{name} cannot be bisected: {why}. Those that can: {', '.join(able)}")
    for setting in (kind.governed.setting, "target_density"):
        if settings.get(setting) not in (None, defaults.get(setting)):  # files spell out defaults
            raise SettingError(
                f"bisection finds {kind.governed.setting} by itself: leave method.{setting} out"
            )
    return kind.governed
