"""`prunus sweep`: all runs of an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from warnings import warn

from cyclopts import Parameter

from prunus.cli.options import WHAT, Flag, SweepOptions
from prunus.cli.output import answering, next_step
from prunus.cli.trust import trusted_in
from prunus.errors import PrunusError, PrunusWarning, SettingError
from prunus.files import resolved
from prunus.lookup import trusting, unknown

if TYPE_CHECKING:
    from prunus.sweeps import Experiment, RunState


class SweepFailedError(PrunusError, RuntimeError):
    """Some runs of a sweep failed."""

    status = 1


def sweep(
    experiment: Annotated[Path, Parameter(group=WHAT)],
    *,
    scale: Annotated[str | None, Parameter(group=WHAT)] = None,
    trust: Annotated[Flag, Parameter(group=WHAT)] = False,
    options: SweepOptions = SweepOptions(),  # noqa: B008 (frozen)
) -> None:
    """Do all runs that an experiment describes, side by side.

    The same command resumes after an interruption; finished runs are not repeated. Runs that failed
    are tried again with --retry only. The exit status is 1 if any has failed.

    Parameters
    ----------
    experiment
        A YAML file (see docs/sweeps.md), or the name of one that comes with Prunus: comparison, ...
    scale
        One of the experiment's scales: smoke, cpu, paper, ...
    trust
        Let the file name code to import, and paths outside its folder.
    """
    from prunus.sweeps.experiment import experiment_names, named_experiment, read_experiment

    names = experiment_names()
    ours = str(experiment) in names and not experiment.is_file()
    if not (ours or experiment.exists() or experiment.suffix or len(experiment.parts) > 1):
        raise unknown("experiment or file", str(experiment), names)
    whole = named_experiment(str(experiment)) if ours else read_experiment(experiment)
    chosen = whole.at_scale(scale)
    # Of ours too: code is looked for in the current folder, which may be anybody's.
    out = options.out or folder_for(chosen, scale)
    content, typed = whole.model_dump(mode="json"), () if options.data is None else ("data_root",)
    with (
        trusting(*trusted_in(experiment, content, trust=trust, typed=typed)),
        answering(as_json=options.json) as answer,
    ):
        runs = do_runs(chosen, out, options)
        answer({"sweep": out, "runs": [run.as_data(resolved(out)) for run in runs]})
        if not options.dry_run:
            check_finished(runs)
            next_step("prunus", "report", out)


def folder_for(experiment: Experiment, scale: str | None) -> Path:
    """Where a sweep goes unless --out says otherwise."""
    return Path("runs") / (experiment.name if scale is None else f"{experiment.name}-{scale}")


def do_runs(experiment: Experiment, out: Path, options: SweepOptions) -> Sequence[RunState]:
    """Do or list the runs; how far each is in the end."""
    from prunus.sweeps import LocalExecutor, dask_executor, make_plan, run_sweep, survey
    from prunus.sweeps.display import Display
    from prunus.sweeps.scheduler import sweep_file
    from prunus.sweeps.state import chosen

    if options.cluster is not None and options.workers is not None:
        raise SettingError("--workers are processes on this machine: leave that out, or --cluster")
    plan = make_plan(experiment, out, data=options.data, fetch_missing=options.download)
    known = _known(options.known, frozenset(run.key for run in plan))
    wanted = chosen(plan, options.only)
    if options.dry_run:
        listed = [run for run in plan if run.id in wanted]
        runs = survey(listed, sweep_file(experiment, out).failures(), known)
        _list(runs)
        return runs
    with (
        LocalExecutor(options.workers, threads=options.threads, logs=out / "logs")
        if options.cluster is None
        else dask_executor(options.cluster, experiment.resources)
    ) as executor:
        runs = run_sweep(
            *(experiment, out, executor),
            plan=plan,
            threads=options.threads,
            retry=options.retry,
            known=known,
            wanted=wanted,
            display=Display(),
        )
    finished = sum(run.status == "finished" for run in runs)
    print(f"\n{finished} of {len(runs)} runs are finished.\nSweep: {out}")
    return runs


def _known(files: Sequence[Path], planned: frozenset[str]) -> frozenset[str]:
    """The keys of all runs whose results are in files of `prunus report --json`."""
    if not files:
        return frozenset()
    from prunus.report.file import read_report

    known: set[str] = set()
    for file in files:
        finished = read_report(file).finished
        if not finished & planned:
            warn(
                f"--known {file} has the results of none of these runs, so it spares none: their "
                "settings or seeds are others, or an older version wrote it",
                PrunusWarning,
                stacklevel=2,
            )
        known |= finished
    return frozenset(known)


def _list(runs: Sequence[RunState]) -> None:
    from prunus.sweeps.planned import describe
    from prunus.tables import text_table

    rows = []
    for run in runs:
        status = f"failed: {run.error}" if run.error else run.status
        rows.append([describe(run.planned), str(run.planned.epochs), status])
    print(text_table(["run", "epochs", "status"], rows))
    finished = sum(run.status == "finished" for run in runs)
    print(f"\n{len(runs)} runs, {finished} of them finished.")


def check_finished(runs: Sequence[RunState]) -> None:
    """Raise `SweepFailedError` unless all are."""
    from prunus.sweeps.planned import describe

    failed = [run for run in runs if run.status == "failed"]
    waiting = sum(run.status not in ("finished", "failed") for run in runs)
    if failed:
        causes = "\n".join(f"  {describe(run.planned)}: {run.error}" for run in failed)
        others = f", and {waiting} wait" if waiting else ""
        raise SweepFailedError(
            f"{len(failed)} of {len(runs)} runs failed{others}. The same command with --retry "
            f"tries them again:\n{causes}"
        )
    if waiting:
        raise SweepFailedError(
            f"{waiting} runs were stopped or lost their workers; the same command resumes them"
        )
