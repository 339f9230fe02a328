"""Plain CS to a wanted density: bisection over the mask init `s0`, by whole runs.

The density grows with `s0` (appendix A of the paper), so halving an interval of `s0` finds the run
that ends nearest to a target. CS with `target_density` needs one run instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, replace
from typing import Any

from prunus.errors import SettingError
from prunus.lookup import trusted_names
from prunus.methods.settings import DENSITY
from prunus.runs.results import RunResults
from prunus.runs.settings import RunSettings, resolve
from prunus.runs.stages import execute
from prunus.sweeps.work import run_one

Densities = Callable[[Sequence[float]], Sequence[float]]
"""The density that a whole run ends at, for each of several mask inits."""

WIDEST = 2.0
"""No run starts its scores further from zero than this."""


@dataclass(frozen=True)
class Trial:
    """A run with one mask init, and the density that it ended at."""

    mask_init: float
    density: float
    network_density: float | None = None
    """The same of all weights of the network, where that is known."""


@dataclass(frozen=True)
class Bisection:
    """The run nearest to the target, and all that were tried, by mask init."""

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


def find_mask_init(
    densities: Densities,
    target_density: float,
    *,
    low: float = -0.3,
    high: float = 0.3,
    tolerance: float = 0.05,
    at_once: int = 1,
    max_runs: int = 12,
) -> Bisection:
    """The mask init whose run ends nearest to `target_density`.

    `densities` runs CS from each of the given mask inits; it gets `at_once` of them at a time (two
    at first, at least), so that it may run them side by side. `low` and `high` (the paper's range)
    are where to begin, and move outwards if the target is not between them. Ends within `tolerance`
    of the target, relative to it, or after about `max_runs` runs. A target that no mask init
    reaches is an error.
    """
    DENSITY.check("target_density", target_density)
    if not low < high:
        raise SettingError(f"low={low:g} is not below high={high:g}")
    if at_once < 1 or max_runs < 2:
        raise SettingError(f"at_once={at_once} and max_runs={max_runs}: need at least 1 and 2 runs")
    trials: list[Trial] = []

    def run(inits: Sequence[float]) -> None:
        trials.extend(map(Trial, inits, densities(inits)))
        trials.sort(key=lambda trial: trial.mask_init)

    def found() -> Bisection:
        best = min(trials, key=lambda trial: abs(trial.density - target_density))
        return Bisection(best, tuple(trials), target_density, tolerance)

    width = (high - low) / max(1, at_once - 1)
    run([low, *(low + width * number for number in range(1, at_once - 1)), high])
    while not found().near_enough and len(trials) < max_runs:
        below = max((t.mask_init for t in trials if t.density < target_density), default=None)
        above = min((t.mask_init for t in trials if t.density >= target_density), default=None)
        if below is None:
            run(_outwards(trials[0], target_density, at_once))
        elif above is None:
            run(_outwards(trials[-1], target_density, at_once))
        else:
            width = (above - below) / (at_once + 1)  # negative where the densities are not in order
            run([below + width * number for number in range(1, at_once + 1)])
    return found()


def _outwards(outermost: Trial, target_density: float, number: int) -> list[float]:
    """That many mask inits, each twice as far out as the one before; fewer at the widest."""
    at = outermost.mask_init
    if abs(at) >= WIDEST:
        raise SettingError(
            f"no mask init reaches target_density={target_density:g}: mask_init={at:g} still ends "
            f"at {outermost.density:.4g}. Use more epochs or a larger score_lr, or CS with a "
            "budget (method.target_density), which reaches any"
        )
    sign = 1 if outermost.density < target_density else -1
    inits: list[float] = []
    while len(inits) < number and abs(at) < WIDEST:
        at = max(-WIDEST, min(WIDEST, at + sign * max(0.3, abs(at))))
        inits.append(at)
    return inits


def bisect_runs(
    command: str,
    given: Mapping[str, Any],
    target_density: float,
    *,
    fetch_missing: bool = False,
    executor: Executor | None = None,
    tell: Callable[[Trial], None] | None = None,
    **options: Any,
) -> tuple[Bisection, RunSettings, RunResults]:
    """`find_mask_init` with runs in their own folders: none is repeated, all can be resumed.

    With an `executor`, runs go side by side: give `at_once` too. `tell` is called with each run
    that ended.
    Returns what was found, with the settings and results of the best run.
    """
    runs: dict[float, RunSettings] = {}
    done: dict[float, RunResults] = {}

    def densities(inits: Sequence[float]) -> list[float]:
        futures: dict[Future[RunResults], float] = {}
        for mask_init in inits:
            method = {**_method(given), "mask_init": mask_init}
            runs[mask_init], task = resolve(
                command, {**given, "method": method}, fetch_missing=fetch_missing
            )
            if executor is None:
                note(mask_init, execute(runs[mask_init], task))
            else:
                complete = runs[mask_init].model_dump(mode="json")
                future = executor.submit(run_one, complete, trusted=trusted_names())
                futures[future] = mask_init
        for future in as_completed(futures):
            note(futures[future], future.result())
        return [done[mask_init].stages[-1].density for mask_init in inits]

    def note(mask_init: float, results: RunResults) -> None:
        done[mask_init] = results
        if tell is not None:
            tell(ended(mask_init))

    def ended(mask_init: float) -> Trial:
        last = done[mask_init].stages[-1]
        return Trial(mask_init, last.density, last.network_density)

    found = find_mask_init(densities, target_density, **options)
    best = found.best.mask_init
    trials = tuple(ended(trial.mask_init) for trial in found.trials)
    return replace(found, best=ended(best), trials=trials), runs[best], done[best]


def _method(given: Mapping[str, Any]) -> dict[str, Any]:
    method = given.get("method") or {}
    method = {"name": method} if isinstance(method, str) else dict(method)
    if method.setdefault("name", "cs") != "cs":
        raise SettingError(f"bisection is over the mask init of cs; method={method['name']!r}")
    for name in ("mask_init", "target_density"):
        if method.get(name):  # zero is the default, which a settings file spells out
            raise SettingError(f"bisection finds the mask init by itself: leave method.{name} out")
    return method
