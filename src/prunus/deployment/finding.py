"""From what the command line names to a trained network: a ticket, and the task it is for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from prunus.errors import SettingError
from prunus.search.execution import read_results
from prunus.search.settings_file import read_settings
from prunus.tasks import Task
from prunus.tasks.data import DataOptions, LoaderOptions
from prunus.tasks.registry import load_task
from prunus.ticket import Ticket

_BATCH = 256


@dataclass(frozen=True)
class Found:
    """A trained ticket, and its task with the data as the run cut them."""

    path: Path
    ticket: Ticket
    task: Task


def find(place: Path, task: str | None, data: Path | None, *, download: bool = False) -> Found:
    """The trained network in a ticket file, or the last one of a run folder."""
    path = _last_trained(place) if place.is_dir() else place
    ticket = Ticket.load(path)
    if ticket.manifest.rewind_point is not None:
        raise SettingError(
            f"{path} holds early weights, to re-train from: run prunus retrain {path} first, and "
            "deploy the run that comes of it"
        )
    name = task or ticket.manifest.task
    if not name:
        raise SettingError(f"{path} does not say which task it is for: give --task")
    settings = _settings_of(path)
    options = DataOptions(**settings.get("data", {}))
    root = data or Path(settings.get("data_root", "data"))
    return Found(path, ticket, load_task(name, root, options, fetch_missing=download))


def accuracy(task: Task, network: Any) -> dict[str, float]:
    """The fraction of images that a network gets right, of each split that is held out."""
    found = {}
    options = LoaderOptions(_BATCH, device=torch.device("cpu"))
    for split in ("validation", "test"):
        right = total = 0
        with torch.no_grad():
            for images, labels in task.data.evaluation(split, options).epoch(0):  # type: ignore[arg-type]
                right += int((network(images).argmax(1) == labels).sum())
                total += len(labels)
        if total:
            found[split] = right / total
    return found


def example(task: Task, batch: int) -> torch.Tensor:
    """A batch of the task's own images."""
    loader = task.data.evaluation("test", LoaderOptions(batch, device=torch.device("cpu")))
    images: torch.Tensor = next(iter(loader.epoch(0)))[0]
    return images


def _last_trained(folder: Path) -> Path:
    results = read_results(folder)
    if results is None:
        raise SettingError(f"{folder} is not the folder of a run: it has no results.json")
    for stage in reversed(results["stages"]):
        if stage.get("ticket"):
            return folder / stage["ticket"]
    raise SettingError(f"the run in {folder} has not finished a network yet: let it go on")


def _settings_of(ticket: Path) -> dict[str, Any]:
    """The settings of the run that wrote a ticket, if it still lies in its folder."""
    path = ticket.resolve().parent.parent / "settings.yaml"
    return read_settings(path) if path.exists() else {}
