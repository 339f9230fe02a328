"""`prunus train`, `search`, `prune`, `retrain`: runs with settings from a file and from flags."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from prunus.cli.options import SPARSITY, WHAT, Flag, RunOptions, SparsityOptions, use_threads
from prunus.cli.output import answering, next_step
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
    sparsity: SparsityOptions = SparsityOptions(),  # noqa: B008
    rounds: Annotated[int | None, Parameter(group=SPARSITY)] = None,
    rewind_epoch: Annotated[float | None, Parameter(group=SPARSITY)] = None,
    rates_of: Annotated[Path | None, Parameter(group=SPARSITY)] = None,
    whole_tickets: Annotated[Flag, Parameter(group=SPARSITY)] = False,
) -> None:
    """Search for tickets: in each round train, decide the mask, save the ticket.

    Parameters
    ----------
    rounds
        Rounds, and so tickets (default: 5; with a target density, one for each; 1 for methods that
        decide once).
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
        "rounds": rounds,
        "rewind_epoch": rewind_epoch,
        "whole_tickets": whole_tickets or None,
    }
    if rates_of is not None:
        from prunus.runs import rates_of as copied

        own["method"] = {"name": sparsity.method or "imp", "rate": copied(rates_of)}
    _run("search", common, sparsity, own)


def prune(
    *,
    common: RunOptions = RunOptions(),  # noqa: B008
    sparsity: SparsityOptions = SparsityOptions(),  # noqa: B008
) -> None:
    """Train and sparsify at once, fix the mask at the recipe's commit_epoch, fine-tune."""
    _run("prune", common, sparsity)


def retrain(
    ticket: Annotated[Path, Parameter(group=WHAT)],
    *,
    common: RunOptions = RunOptions(),  # noqa: B008
    control: Annotated[
        Literal["reinit", "shuffled", "random", "magnitude"] | None, Parameter(group=WHAT)
    ] = None,
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
    _run("retrain", common, own={"ticket": str(ticket), "control": control})


def _run(
    command: str,
    common: RunOptions,
    sparsity: SparsityOptions = SparsityOptions(),  # noqa: B008
    own: Mapping[str, Any] | None = None,
) -> None:
    from lightning_fabric.utilities.rank_zero import rank_zero_only

    from prunus.cli.show import show_bisection, show_results
    from prunus.cli.speed import budget_for, speed_of_run
    from prunus.runs import complete_rounds, execute, resolve
    from prunus.runs.results import finished_at
    from prunus.runs.settings_file import merge

    given, names = _settings(common, sparsity, own or {})
    if command == "search":
        with trusting(*names):
            complete_rounds(given)
            if sparsity.bisect or sparsity.target_speedup is not None:
                given.setdefault("rounds", 1)
    use_threads(common.threads, given.get("engine"))
    with trusting(*names), answering(as_json=common.json) as answer:
        found = before = budget = None
        if sparsity.bisect:
            if sparsity.target_speedup is not None:
                raise SettingError("--bisect finds a density: leave out --target-speedup")
            if common.fresh:
                raise SettingError("--fresh does one run again: leave out --bisect, or use --out")
            found, settings, results = _bisect(
                command, given, sparsity, fetch_missing=common.download
            )
        else:
            if sparsity.at_once is not None or sparsity.tolerance is not None:
                raise SettingError("--at-once and --tolerance are for --bisect: leave them out")
            settings, task = resolve(command, given, fetch_missing=common.download)
            if task.about:
                rank_zero_only(print)(task.about)
            if sparsity.target_speedup is not None:
                budget = budget_for(sparsity.target_speedup, sparsity.batch, settings, task)
                own_budget = {"method": {"target_macs": budget.macs}}
                settings, _ = resolve(command, merge(given, own_budget), load=lambda *_, **__: task)
            if common.fresh:
                rank_zero_only(_move_away)(settings.folder)
            before = finished_at(settings.folder)
            results = execute(settings, task)

        @rank_zero_only
        def show() -> None:
            show_results(results, settings.folder, finished=before)
            about: dict[str, Any] = {}
            if found is not None:
                show_bisection(found)
                about = {"bisection": asdict(found)}
            if budget is not None:
                speed = speed_of_run(
                    settings.folder, results, task, sparsity.batch, budget.predicted
                )
                budget.show(speed)
                about = {"speedup": budget.as_dict(speed)}
            _show_next(results, settings)
            answer({"run": settings.folder, **results.model_dump(mode="json"), **about})

        show()


def _show_next(results: RunResults, settings: RunSettings) -> None:
    """How to go on with what a run found."""
    own = ["--task", settings.task] if ":" in settings.task else []  # tickets cannot name code
    data = [] if settings.data_root == Path("data") else ["--data", settings.data_root]
    last = settings.folder / (results.stages[-1].ticket or "")
    words: list[object]
    match settings.command:
        case "train":
            words = ["search", "--task", settings.task, "--target-density", "10%"]
        case "search":
            words = ["retrain", last, *own]
        case _:
            words = ["deploy", settings.folder, *own]
    next_step("prunus", *words, *data)


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
    common: RunOptions, sparsity: SparsityOptions, own: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """What the file and the flags say together, and the names of code to trust in it."""
    from prunus.runs.settings_file import merge, only_given, overrides, read_settings

    flags = (_of_every_run(common), _of_sparsity(sparsity), own)
    typed = merge(*map(only_given, flags), overrides(common.set_))
    method = typed.get("method", {})
    named = (typed.get("task"), method.get("name") if isinstance(method, Mapping) else method)
    names = [name for name in named if isinstance(name, str)]
    if common.config is None:
        return typed, names
    file = read_settings(common.config)
    left = {n: v for n, v in file.items() if n not in typed or isinstance(typed[n], Mapping)}
    return merge(file, typed), names + trusted_in(common.config, left, trust=common.trust)


def _bisect(
    command: str, given: Mapping[str, Any], sparsity: SparsityOptions, *, fetch_missing: bool
) -> tuple[Bisection, RunSettings, RunResults]:
    from prunus.sweeps import LocalExecutor, bisect_runs
    from prunus.tables import percent

    if sparsity.target_density is None or len(sparsity.target_density) != 1:
        raise SettingError("--bisect needs one --target-density to find")
    options: dict[str, Any] = {"tolerance": sparsity.tolerance, "at_once": sparsity.at_once}
    with ExitStack() as stack:
        if sparsity.at_once is not None:
            options["executor"] = stack.enter_context(LocalExecutor(sparsity.at_once))
        return bisect_runs(
            command,
            given,
            sparsity.target_density[0],
            fetch_missing=fetch_missing,
            tell=lambda name, trial: print(
                f"{name} {trial.value:g}: {percent(trial.density)} kept"
            ),
            **{name: value for name, value in options.items() if value is not None},
        )


def _of_every_run(common: RunOptions) -> dict[str, Any]:
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


def _of_sparsity(sparsity: SparsityOptions) -> dict[str, Any]:
    # With --bisect the density is what is looked for, and not a setting of a run.
    density = None if sparsity.bisect else sparsity.target_density
    return {
        "method": {
            "name": sparsity.method,
            "mask_init": sparsity.mask_init,
            "select": _one(sparsity.select),
            "exclude": _one(sparsity.exclude),
            "target_density": _one(density),
            "target_macs": _one(sparsity.target_macs),
        }
    }


def _one(values: Sequence[Any] | None) -> Any:
    """What was given once stands for itself."""
    return values[0] if values and len(values) == 1 else values and list(values)
