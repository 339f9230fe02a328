"""Options that several commands have."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from prunus.errors import SettingError, how_to_install

Flag = Annotated[bool, Parameter(negative="")]
PLOTS = ("altair", "vl_convert")
"""Packages that the page and its plots need."""


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """Flags of every run. A flag wins over `--config`, and `--set` over both."""

    task: str | None = None
    "DATA/NETWORK, such as digits/digits_convnet or cifar10/resnet20; or package.module:function."
    recipe: str | None = None
    "How to optimise: tickets, tickets-vgg, pruning, conv6, imagenet, digits or modern."
    epochs: int | None = None
    "Epochs (of a round); the recipe's learning-rate drops move in proportion."
    batch_size: int | None = None
    "Images in one step, on all devices together."
    seed: int | None = None
    "Decides the initial weights and the order of the images."
    data: Path | None = None
    "Folder with the data sets (default: data)."
    download: Flag = False
    "Fetch missing data from its official place."
    out: Path | None = None
    "Folder for run folders (default: runs)."
    devices: int | None = None
    "Processes that train together, each with a GPU if there are any."
    workers: int | None = None
    "Processes that decode images, for each device."
    threads: int | None = None
    "Threads of each process (default: half of the cores). They change the last bits of results."
    track: Annotated[list[str] | None, Parameter(negative="")] = None
    "Also send metrics to tensorboard, mlflow or wandb."
    config: Path | None = None
    "YAML file of settings; every run writes its own as settings.yaml."
    trust: Flag = False
    "Let the file of --config name code to import, and paths outside the current folder."
    fresh: Flag = False
    "Do the run again from the beginning, even if it is finished; the old one is kept elsewhere."
    set_: Annotated[list[str], Parameter(name="--set", negative="")] = field(default_factory=list)
    "Any setting by name: --set recipe.lr=0.05 --set engine.precision=bf16."


@Parameter(name="*")
@dataclass(frozen=True)
class SweepOptions:
    """How and where the runs of a sweep are done."""

    workers: int | None = None
    "Processes (default: as many as GPUs, or else as cores)."
    threads: int = 1
    "Threads of each run. Results depend on it in their last bits, but not on workers."
    cluster: str | None = None
    "Address of a Dask scheduler, whose workers do the runs instead: tcp://HOST:8786."
    data: Path | None = None
    "Folder with the data sets (default: data)."
    out: Path | None = None
    "Folder for everything (default: runs/NAME, with -SCALE if there is one)."
    dry_run: Flag = False
    "Only list the runs, and how far each is."
    known: tuple[Path, ...] = ()
    "A file of prunus report --json: runs whose results it holds count as finished."
    retry: Flag = False
    "Also retry runs that failed before."
    download: Flag = False
    "Fetch missing data from its official place."


def need(extra: str, *packages: str) -> None:
    """Raise, before any work, if packages of one of Prunus' extras are not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise SettingError(
            f"this command needs what is not installed: {', '.join(missing)}. Run "
            f"{how_to_install(extra)}"
        )


def use_threads(threads: int | None, engine: Mapping[str, Any] | None) -> None:
    """Half of the cores unless somebody says otherwise.

    With all of them a small network can be ten times slower on a machine that has something else
    to do, because each thread waits for the last one. The number does not depend on how busy the
    machine is, so that a run that is resumed there still equals an uninterrupted one.
    """
    import torch

    from prunus.sweeps.executors.local import available_cores

    if threads is not None and threads < 1:
        raise SettingError(f"--threads {threads}: a process has at least one thread")
    alone = not isinstance(engine, Mapping) or engine.get("devices", 1) == 1
    if threads is None and alone and "OMP_NUM_THREADS" not in os.environ:
        threads = max(1, available_cores() // 2)
    if threads is not None:
        torch.set_num_threads(threads)
