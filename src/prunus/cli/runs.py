"""`prunus train`, `search`, `prune`, `retrain`: runs with settings from a file and from flags."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from prunus.cli.options import Flag, RunOptions, use_threads
from prunus.cli.trust import trusted_in
from prunus.errors import SettingError
from prunus.lookup import trusting

if TYPE_CHECKING:
    from prunus.runs.results import RunResults
    from prunus.runs.settings import RunSettings
    from prunus.sweeps import Bisection


def train(*, common: RunOptions = RunOptions()) -> None:  # noqa: B008 (frozen)
    """Train the dense network of a task: the baseline.

    The same command resumes after an interruption, and shows the results once it is done.
    """
    _run("train", common)


def search(
    *,
    common: RunOptions = RunOptions(),  # noqa: B008
    method: str | None = None,
    select: Annotated[list[str] | None, Parameter(negative="")] = None,
    exclude: Annotated[list[str] | None, Parameter(negative="")] = None,
    mask_init: float | None = None,
    target_density: Annotated[list[float] | None, Parameter(negative="")] = None,
    bisect: Flag = False,
    at_once: int = 1,
    rounds: int | None = None,
    rewind_epoch: float | None = None,
    rates_of: Path | None = None,
    whole_tickets: Flag = False,
) -> None:
    """Search for tickets: in each round train, decide the mask, save the ticket.

    Parameters
    ----------
    method
        How to search (default: cs). Its settings: --set method.NAME=VALUE.
    select
        Which weights may be removed: auto (by kind of network), paper (convolutions), body (all but
        embeddings and the last layer), all, conv, linear, or patterns of names; may be given more
        than once (default: the task's).
    exclude
        Which of these may not, in the same words.
    mask_init
        Where the scores of CS start; lower keeps fewer weights.
    target_density
        The fraction of weights to keep, for methods that have one (cs: with a budget). Given more
        than once, cs takes one for each round.
    bisect
        Reach the target density with plain cs: bisection over the mask init, by whole runs.
    at_once
        With --bisect: runs to try side by side, each in a process of its own.
    rounds
        Rounds, and so tickets (default: 5; with a target density: 1, or one for each).
    rewind_epoch
        The epoch whose weights the tickets start from (default: 2, the paper's).
    rates_of
        Folder of a finished search: imp (or --method imp-c) removes as much as that in each round,
        for as many rounds unless --rounds says otherwise.
    whole_tickets
        Also store the weights that tickets remove: retrain --control shuffled, random or
        magnitude needs them.
    """
    own: dict[str, Any] = {
        "method": {
            "name": method,
            "mask_init": mask_init,
            "select": _one(select),
            "exclude": _one(exclude),
        },
        "rounds": rounds,
        "rewind_epoch": rewind_epoch,
        "whole_tickets": whole_tickets or None,
    }
    if rates_of is not None:
        from prunus.runs import rates_of as copied

        own["method"] |= {"name": method or "imp", "rate": copied(rates_of)}
    _run("search", common, own, target_density, bisect=bisect, at_once=at_once)


def prune(
    *,
    common: RunOptions = RunOptions(),  # noqa: B008
    method: str | None = None,
    select: Annotated[list[str] | None, Parameter(negative="")] = None,
    exclude: Annotated[list[str] | None, Parameter(negative="")] = None,
    mask_init: float | None = None,
    target_density: float | None = None,
    bisect: Flag = False,
    at_once: int = 1,
) -> None:
    """Train and sparsify at once, fix the mask at the recipe's commit_epoch, fine-tune.

    Parameters
    ----------
    method
        How to prune (default: cs). Its settings: --set method.NAME=VALUE.
    select
        Which weights may be removed: auto (by kind of network), paper (convolutions), body (all but
        embeddings and the last layer), all, conv, linear, or patterns of names; may be given more
        than once (default: the task's).
    exclude
        Which of these may not, in the same words.
    mask_init
        Where the scores of CS start; lower keeps fewer weights.
    target_density
        The fraction of weights to keep, for methods that have one (cs: with a budget).
    bisect
        Reach the target density with plain cs: bisection over the mask init, by whole runs.
    at_once
        With --bisect: runs to try side by side, each in a process of its own.
    """
    own = {
        "method": {
            "name": method,
            "mask_init": mask_init,
            "select": _one(select),
            "exclude": _one(exclude),
        }
    }
    densities = None if target_density is None else [target_density]
    _run("prune", common, own, densities, bisect=bisect, at_once=at_once)


def retrain(
    ticket: Path,
    *,
    common: RunOptions = RunOptions(),  # noqa: B008
    control: Literal["reinit", "shuffled", "random", "magnitude"] | None = None,
) -> None:
    """Train a ticket's subnetwork from its early weights, on its task or on another (--task).

    On its task it gets what the recipe has left after those weights, so that it trains no longer
    than the dense network. On another one the layers of the same name and shape are transferred,
    the classifier is new, and the recipe is done in full.

    Parameters
    ----------
    ticket
        A ticket file, as search writes them.
    control
        Train something to compare the ticket with. reinit: its mask, with newly drawn weights.
        shuffled: its weights, under a random mask of the same density in every layer. random: the
        same, but of the same density in all. magnitude: its weights, under the mask of the largest
        of them in every layer, of the same density there.
    """
    _run("retrain", common, {"ticket": str(ticket), "control": control})


def _run(
    command: str,
    common: RunOptions,
    own: Mapping[str, Any] | None = None,
    densities: Sequence[float] | None = None,
    *,
    bisect: bool = False,
    at_once: int = 1,
) -> None:
    from lightning_fabric.utilities.rank_zero import rank_zero_only

    from prunus.cli.show import show_bisection, show_results
    from prunus.runs import execute, resolve
    from prunus.runs.results import finished_at

    given, names = _settings(common, own or {}, None if bisect else densities)
    if command == "search":
        _complete_rounds(given, bisect=bisect)
    show = rank_zero_only(show_results)
    use_threads(common.threads, given.get("engine"))
    with trusting(*names):
        if bisect:
            if common.fresh:
                raise SettingError("--fresh does one run again: leave out --bisect, or use --out")
            if not densities or len(densities) != 1:
                raise SettingError("--bisect needs one --target-density to find")
            found, settings, results = _bisect(
                command, given, densities[0], at_once, fetch_missing=common.download
            )
            show(results, settings.folder)
            rank_zero_only(show_bisection)(found)
            return
        if at_once != 1:
            raise SettingError(
                "--at-once is for --bisect; prunus sweep does many runs side by side"
            )
        settings, task = resolve(command, given, fetch_missing=common.download)
        if task.about:
            rank_zero_only(print)(task.about)
        if common.fresh:
            rank_zero_only(_move_away)(settings.folder)
        before = finished_at(settings.folder)
        show(execute(settings, task), settings.folder, finished=before)


def _move_away(folder: Path) -> None:
    """Keep the run in a folder, if there is one, where neither it nor a report finds it."""
    from prunus.training.folder_lock import FolderLock

    if not folder.exists():
        return
    lock = FolderLock(folder)
    lock.acquire()
    try:
        place = Path(f"{folder.parent}-old") / f"{folder.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)
    finally:
        lock.release()
    print(f"The run before is now {place}.")


def _settings(
    common: RunOptions, own: Mapping[str, Any], densities: Sequence[float] | None
) -> tuple[dict[str, Any], list[str]]:
    """What the file and the flags say together, and the names of code to trust in it."""
    from prunus.runs.settings_file import merge, only_given, overrides, read_settings

    wanted: dict[str, Any] = {}
    if densities:
        wanted = {"method": {"target_density": _one(densities)}}
    typed = merge(only_given(_as_settings(common)), only_given(own), wanted, overrides(common.set_))
    method = typed.get("method", {})
    named = (typed.get("task"), method.get("name") if isinstance(method, Mapping) else method)
    names = [name for name in named if isinstance(name, str)]
    if common.config is None:
        return typed, names
    file = read_settings(common.config)
    left = {n: v for n, v in file.items() if n not in typed or isinstance(typed[n], Mapping)}
    return merge(file, typed), names + trusted_in(common.config, left, trust=common.trust)


def _complete_rounds(given: dict[str, Any], *, bisect: bool) -> None:
    """If rounds are not given: one for each density or rate, where there are several."""
    method = given.get("method")
    for name in ("target_density", "rate"):
        value = method.get(name) if isinstance(method, Mapping) else None
        if isinstance(value, list) or (value is not None and name == "target_density"):
            given.setdefault("rounds", len(value) if isinstance(value, list) else 1)
    if bisect:
        given.setdefault("rounds", 1)


def _bisect(
    command: str,
    given: Mapping[str, Any],
    target: float,
    at_once: int,
    *,
    fetch_missing: bool,
) -> tuple[Bisection, RunSettings, RunResults]:
    from prunus.sweeps import LocalExecutor, bisect_runs
    from prunus.tables import percent

    if at_once == 1:
        return bisect_runs(command, given, target, fetch_missing=fetch_missing)
    with LocalExecutor(at_once) as executor:
        return bisect_runs(
            command,
            given,
            target,
            fetch_missing=fetch_missing,
            executor=executor,
            at_once=at_once,
            tell=lambda trial: print(
                f"mask init {trial.mask_init:g}: {percent(trial.density)} kept"
            ),
        )


def _one(values: Sequence[Any] | None) -> Any:
    """What was given once stands for itself."""
    return values[0] if values and len(values) == 1 else values and list(values)


def _as_settings(common: RunOptions) -> dict[str, Any]:
    return {
        "task": common.task,
        "seed": common.seed,
        "recipe": {
            "name": common.recipe,
            "epochs": common.epochs,
            "batch_size": common.batch_size,
        },
        "engine": {"devices": common.devices, "workers": common.workers},
        "trackers": common.track,
        "data_root": None if common.data is None else str(common.data),
        "out": None if common.out is None else str(common.out),
    }
