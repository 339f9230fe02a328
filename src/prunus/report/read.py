"""Run folders and sweeps on disk, finished or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar
from warnings import warn

from pydantic import BaseModel, ConfigDict, ValidationError

from prunus.errors import PrunusWarning, SettingError
from prunus.files import inside, parse_json, read_text
from prunus.runs.results import RESULTS, RunResults, parse_results
from prunus.runs.settings_file import parse_yaml
from prunus.sweeps.state import Status


class _FromFile(BaseModel):
    """Reads files of later versions too: fields that it does not know are ignored."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class _Settings(_FromFile):
    command: Literal["train", "search", "prune", "retrain"]
    task: str
    seed: int
    method: dict[str, Any] | None = None
    ticket: str | None = None


class SweepRun(_FromFile):
    """A run as `sweep.json` describes it."""

    id: str
    row: str
    parameters: dict[str, Any] = {}
    folder: str | None
    """None as long as it depends on what another run finds."""
    status: Status
    error: str | None = None
    needs: str | None = None
    stage: str | None = None


class Sweep(_FromFile):
    """`sweep.json`."""

    version: Literal[1]
    name: str
    runs: list[SweepRun]

    @property
    def over(self) -> bool:
        """Whether no run will change any more; what needs a failed one never starts."""
        hopeless: set[str] = set()
        for run in self.runs:  # after those that they need
            if run.status == "failed" or (run.status == "pending" and run.needs in hopeless):
                hopeless.add(run.id)
            elif run.status != "finished":
                return False
        return True

    @property
    def state(self) -> str:
        """How far it is, in a sentence."""
        counts = {s: sum(run.status == s for run in self.runs) for s in _STATUSES}
        parts = [f"{n} {status}" for status, n in counts.items() if n]
        return f"{self.name}: {len(self.runs)} runs, {', '.join(parts) or 'none yet'}."


_STATUSES: tuple[Status, ...] = ("finished", "running", "pending", "failed")


@dataclass(frozen=True)
class RunFolder:
    """A run: its settings, its results so far, and its entry in a sweep, if it belongs to one."""

    path: Path
    command: str
    task: str
    seed: int
    method: str | None
    settings: Mapping[str, Any]
    results: RunResults
    ticket: str | None
    """The ticket that a re-training takes, as its settings name it."""
    sweep_run: SweepRun | None = None
    source: tuple[Path, str] | None = None
    """Folder and row of the run that it needs, if a sweep says so."""

    @property
    def key(self) -> str:
        """Names it in any session of its sweep; outside of one, the folder's name does."""
        run = self.sweep_run
        return self.path.name if run is None else run.id.removeprefix(f"{run.row}/")

    @cached_property
    def ticket_key(self) -> tuple[str, str]:
        """Folder and file of the ticket it takes; these stay the same when runs are moved."""
        path = Path(self.ticket or "")
        return path.parent.parent.name, path.name


def read_folders(root: Path) -> tuple[list[RunFolder], list[Sweep]]:
    """All runs below `root` that have settings, and the sweeps they belong to.

    Below a folder with `sweep.json`, only the runs that it names count. What cannot be read is left
    out, with a warning that names it.
    """
    sweeps: dict[Path, Sweep] = {}
    for path in sorted(root.rglob("sweep.json")):
        with _leaving_out_damaged():
            sweeps[path.parent] = _parsed(path, _content(path), Sweep)
    runs = [run for folder, sweep in sweeps.items() for run in _of_sweep(folder, sweep)]
    for path in sorted(root.rglob("settings.yaml")):
        if not any(folder in path.parents for folder in sweeps):
            with _leaving_out_damaged():
                runs.append(_run(path.parent))
    return runs, list(sweeps.values())


def _of_sweep(folder: Path, sweep: Sweep) -> list[RunFolder]:
    places = {}
    for run in sweep.runs:
        if run.folder and inside(run.folder, folder):
            places[run.id] = folder / run.folder, run.row
        elif run.folder:
            text = (
                f"left out {run.folder!r:.200} of {folder / 'sweep.json'}: it is in another folder"
            )
            warn(text, PrunusWarning, stacklevel=2)
    found = []
    for run in sweep.runs:
        path, _ = places.get(run.id, (None, ""))
        if path is not None and (path / "settings.yaml").exists():
            with _leaving_out_damaged():
                found.append(_run(path, run, places.get(run.needs or "")))
    return found


def _run(
    folder: Path, sweep_run: SweepRun | None = None, source: tuple[Path, str] | None = None
) -> RunFolder:
    values = _content(folder / "settings.yaml")
    settings = _parsed(folder / "settings.yaml", values, _Settings)
    method = settings.method or {}
    return RunFolder(
        path=folder,
        command=settings.command,
        task=settings.task,
        seed=settings.seed,
        method=str(method["name"]) if "name" in method else None,
        settings=values,
        results=_results(folder / RESULTS, settings),
        ticket=settings.ticket,
        sweep_run=sweep_run,
        source=source,
    )


def _results(path: Path, settings: _Settings) -> RunResults:
    """The results so far."""
    if not path.exists():
        return RunResults(
            command=settings.command, task=settings.task, label="", seed=settings.seed
        )
    try:
        return parse_results(_content(path))
    except SettingError as error:
        raise _DamagedError(path, str(error)) from error


class _DamagedError(Exception):
    """A file that cannot be read, and why."""


@contextmanager
def _leaving_out_damaged() -> Iterator[None]:
    """Within this context, a damaged file ends the block, with a warning that names it."""
    try:
        yield
    except _DamagedError as error:
        path, why = error.args
        warn(f"left out {path}, which is damaged: {why}", PrunusWarning, stacklevel=3)


def _content(path: Path) -> Any:
    """What a YAML or JSON file holds."""
    try:
        text = read_text(path)
        return parse_json(text) if path.suffix == ".json" else parse_yaml(text)
    except OSError as error:
        raise _DamagedError(path, error.strerror or str(error)) from error
    except ValueError as error:  # bad UTF-8 is a ValueError
        raise _DamagedError(path, str(error)) from error


_T = TypeVar("_T", bound=_FromFile)


def _parsed(path: Path, content: Any, kind: type[_T]) -> _T:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        why = f"{where}: {first['msg']}" if where else first["msg"]
        raise _DamagedError(path, why) from error
