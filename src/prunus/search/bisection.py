"""Plain CS to a wanted density: bisection over the mask init `s0`, by whole runs.

The density grows with `s0` (appendix A of the paper), so halving an interval of `s0` finds the run
that ends nearest to a target. CS with `target_density` needs one run instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass
from typing import Any

from prunus.errors import SettingError
from prunus.methods.checks import check_density
from prunus.search.settings import RunSettings, resolve
from prunus.search.stages import execute
from prunus.search.sweep.work import run_one

Densities = Callable[[Sequence[float]], Sequence[float]]
"""The density that a whole run ends at, for each of several mask inits."""

WIDEST = 2.0
"""No run starts its scores further from zero than this."""


@dataclass(frozen=True)
class Trial:
    """A run with one mask init, and the density that it ended at."""

    mask_init: float
    density: float


@dataclass(frozen=True)
class Found:
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
) -> Found:
    """The mask init whose run ends nearest to `target_density`.

    `densities` runs CS from each of the given mask inits; it gets `at_once` of them at a time, so
    that it may run them side by side. `low` and `high` (the paper's range) are where to begin, and
    move outwards if the target is not between them. Ends within `tolerance` of the target, relative
    to it, or after about `max_runs` runs. A target that no mask init reaches is an error.
    """
    check_density(target_density)
    if not low < high:
        raise SettingError(f"low={low:g} is not below high={high:g}")
    if at_once < 1 or max_runs < 2:
        raise SettingError(f"at_once={at_once} and max_runs={max_runs}: need at least 1 and 2 runs")
    trials: list[Trial] = []

    def run(inits: Sequence[float]) -> None:
        trials.extend(map(Trial, inits, densities(inits)))
        trials.sort(key=lambda trial: trial.mask_init)

    def found() -> Found:
        best = min(trials, key=lambda trial: abs(trial.density - target_density))
        return Found(best, tuple(trials), target_density, tolerance)

    run([low, high])
    while not found().near_enough and len(trials) < max_runs:
        below = max((t.mask_init for t in trials if t.density < target_density), default=None)
        above = min((t.mask_init for t in trials if t.density >= target_density), default=None)
        if below is None:
            run([_outwards(trials[0], target_density)])
        elif above is None:
            run([_outwards(trials[-1], target_density)])
        else:
            width = (above - below) / (at_once + 1)  # negative where the densities are not in order
            run([below + width * number for number in range(1, at_once + 1)])
    return found()


def _outwards(outermost: Trial, target_density: float) -> float:
    """A mask init twice as far out."""
    if abs(outermost.mask_init) >= WIDEST:
        raise SettingError(
            f"no mask init reaches target_density={target_density:g}: mask_init="
            f"{outermost.mask_init:g} still ends at {outermost.density:.4g}. Use more epochs or a "
            "larger score_lr, or CS with a budget (method.target_density), which reaches any"
        )
    sign = 1 if outermost.density < target_density else -1
    return max(
        -WIDEST, min(WIDEST, outermost.mask_init + sign * max(0.3, abs(outermost.mask_init)))
    )


def bisect_runs(
    command: str,
    given: Mapping[str, Any],
    target_density: float,
    *,
    fetch_missing: bool = False,
    executor: Executor | None = None,
    tell: Callable[[Trial], None] | None = None,
    **options: Any,
) -> tuple[Found, RunSettings, dict[str, Any]]:
    """`find_mask_init` with runs in their own folders: none is repeated, all can be resumed.

    With an `executor`, runs go side by side: give `at_once` too. `tell` hears of each that ended.
    Returns what was found, with the settings and results of the best run.
    """
    done: dict[float, tuple[RunSettings, dict[str, Any]]] = {}

    def densities(inits: Sequence[float]) -> list[float]:
        futures: dict[Future[dict[str, Any]], float] = {}
        for mask_init in inits:
            method = {**_method(given), "mask_init": mask_init}
            settings, task = resolve(
                command, {**given, "method": method}, fetch_missing=fetch_missing
            )
            if executor is None:
                note(mask_init, settings, execute(settings, task))
            else:
                future = executor.submit(run_one, settings.model_dump(mode="json"))
                futures[future] = mask_init
                done[mask_init] = settings, {}
        for future in as_completed(futures):
            note(futures[future], done[futures[future]][0], future.result())
        return [_density(done[mask_init][1]) for mask_init in inits]

    def note(mask_init: float, settings: RunSettings, results: dict[str, Any]) -> None:
        done[mask_init] = settings, results
        if tell is not None:
            tell(Trial(mask_init, _density(results)))

    found = find_mask_init(densities, target_density, **options)
    return found, *done[found.best.mask_init]


def _density(results: Mapping[str, Any]) -> float:
    return float(results["stages"][-1]["density"])


def _method(given: Mapping[str, Any]) -> dict[str, Any]:
    method = given.get("method") or {}
    method = {"name": method} if isinstance(method, str) else dict(method)
    if method.setdefault("name", "cs") != "cs":
        raise SettingError(f"bisection is over the mask init of cs; method={method['name']!r}")
    for name in ("mask_init", "target_density"):
        if method.get(name):  # zero is what a settings file has where nothing was said
            raise SettingError(f"bisection finds the mask init by itself: leave method.{name} out")
    return method
