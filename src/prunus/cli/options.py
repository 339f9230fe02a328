"""Options that several commands have."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter, Token

from prunus.cli.output import AsJson
from prunus.errors import SettingError, how_to_install
from prunus.schema import as_fraction

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
PLOTS = ("altair", "vl_convert")
"""Packages that the page and its plots need."""

# Groups of options in the help of commands, in this order.
WHAT = Group("What is done", sort_key=1)
SPARSITY = Group("Which weights go", sort_key=2)
TRAINING = Group("How it is trained", sort_key=3)
MACHINE = Group("Where it runs", sort_key=4)
FILES = Group("Files and results", sort_key=5)


def _densities(_: Any, tokens: Sequence[Token]) -> list[float]:
    return [_density(token.value) for token in tokens]


def _density(text: str) -> float:
    try:
        return float(as_fraction(text))
    except SettingError:
        raise
    except ValueError:
        raise ValueError(f"{text!r} is neither a fraction, such as 0.1, nor a percentage") from None


Densities = Annotated[list[float] | None, Parameter(converter=_densities, negative="")]
"""Fractions of the weights: 0.1 or 10%."""


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """Flags of every run. A flag wins over `--config`, and `--set` over both."""

    task: Annotated[str | None, Parameter(group=WHAT)] = None
    "DATA/NETWORK, such as digits/digits_convnet (prunus tasks lists them); or \
package.module:function. Required, unless --config or the ticket names it."
    config: Annotated[Path | None, Parameter(group=WHAT)] = None
    "YAML file of settings; every run writes its own as settings.yaml."
    set_: Annotated[list[str], Parameter("--set", negative="", show_default=False, group=WHAT)] = (
        field(default_factory=list)
    )
    "Any setting by name, given once for each: --set recipe.lr=0.05 --set engine.precision=bf16."
    trust: Annotated[Flag, Parameter(group=WHAT)] = False
    "Let the file of --config name code to import, and paths outside its folder."
    fresh: Annotated[Flag, Parameter(group=WHAT)] = False
    "Do the run again from the beginning, even if it is finished; the old one is kept elsewhere."
    recipe: Annotated[str | None, Parameter(group=TRAINING)] = None
    "How to optimise: tickets, tickets-vgg, pruning, conv6, imagenet, digits or modern."
    epochs: Annotated[int | None, Parameter(group=TRAINING)] = None
    "Epochs (of a round); the recipe's learning-rate drops move in proportion."
    batch_size: Annotated[int | None, Parameter(group=TRAINING)] = None
    "Images in one step, on all devices together."
    seed: Annotated[int | None, Parameter(group=TRAINING)] = None
    "Decides the initial weights and the order of the images."
    devices: Annotated[int | None, Parameter(group=MACHINE)] = None
    "Processes that train together, each with a GPU if there are any."
    workers: Annotated[int | None, Parameter(group=MACHINE)] = None
    "Processes that decode images, for each device."
    threads: Annotated[int | None, Parameter(group=MACHINE)] = None
    "Threads of each process (default: half of the cores). They change the last bits of results."
    data: Annotated[Path | None, Parameter(group=FILES)] = None
    "Folder with the data sets (default: data)."
    download: Annotated[Flag, Parameter(group=FILES)] = False
    "Fetch missing data from its official place."
    out: Annotated[Path | None, Parameter(group=FILES)] = None
    "Folder for run folders (default: runs)."
    track: Annotated[list[str] | None, Parameter(negative="", group=FILES)] = None
    "Also send metrics to tensorboard, mlflow or wandb."
    json: Annotated[AsJson, Parameter(group=FILES)] = False
    "Print the results as one JSON document; messages go to stderr."


@Parameter(name="*")
@dataclass(frozen=True)
class SparsityOptions:
    """Flags of the runs that remove weights."""

    method: Annotated[str | None, Parameter(group=SPARSITY)] = None
    "How weights are chosen (default: cs); prunus methods lists the ways. Its settings: --set \
method.NAME=VALUE."
    select: Annotated[list[str] | None, Parameter(negative="", group=SPARSITY)] = None
    "Which weights may be removed: auto (by kind of network), paper (convolutions), body (all but \
embeddings and the last layer), all, conv, linear, or patterns of names; may be given more than \
once (default: the task's)."
    exclude: Annotated[list[str] | None, Parameter(negative="", group=SPARSITY)] = None
    "Which of these may not, in the same words."
    mask_init: Annotated[float | None, Parameter(group=SPARSITY)] = None
    "Where the scores of CS start; lower keeps fewer weights."
    target_density: Annotated[Densities, Parameter(group=SPARSITY)] = None
    "How many weights to keep, 0.1 or 10%, for methods that have one (cs: with a budget). In a \
search of several rounds, cs takes one for each: give it more than once."
    target_macs: Annotated[Densities, Parameter(group=SPARSITY)] = None
    "The same for the multiply-adds of these weights, instead of a target density or with it."
    target_speedup: Annotated[float | None, Parameter(group=SPARSITY)] = None
    "How many times as fast as the dense network (in ONNX Runtime if that is installed, else in \
PyTorch) the deployed network is to be: becomes a --target-macs, by a calibration of some seconds."
    batch: Annotated[int, Parameter(group=SPARSITY)] = 1
    "With --target-speedup: samples in a batch."
    bisect: Annotated[Flag, Parameter(group=SPARSITY)] = False
    "Reach one target density with a method that has none (plain cs, iss, l0, str): bisection over \
the setting that governs it, by whole runs."
    tolerance: Annotated[float | None, Parameter(group=SPARSITY)] = None
    "With --bisect: how far off the density may be, relative to it (default: 0.03)."
    at_once: Annotated[int | None, Parameter(group=SPARSITY)] = None
    "With --bisect: runs to try side by side, each in a process of its own (default: 1)."


@Parameter(name="*")
@dataclass(frozen=True)
class SweepOptions:
    """How and where the runs of a sweep are done."""

    dry_run: Annotated[Flag, Parameter(group=WHAT)] = False
    "Only list the runs, and how far each is."
    retry: Annotated[Flag, Parameter(group=WHAT)] = False
    "Also retry runs that failed before."
    only: Annotated[tuple[str, ...], Parameter(show_default=False, group=WHAT, negative="")] = ()
    "Only the runs whose line in --dry-run fits this pattern ('* CS *seed 0'), and what they need. \
Give it once for each pattern."
    known: Annotated[tuple[Path, ...], Parameter(show_default=False, group=WHAT, negative="")] = ()
    "A file of prunus report --json: runs whose results it holds count as finished. Give it \
once for each file."
    workers: Annotated[int | None, Parameter(group=MACHINE)] = None
    "Processes (default: as many as GPUs, or else as cores)."
    threads: Annotated[int, Parameter(group=MACHINE)] = 1
    "Threads of each run. Results depend on it in their last bits, but not on workers."
    cluster: Annotated[str | None, Parameter(group=MACHINE)] = None
    "Address of a Dask scheduler, whose workers do the runs instead: tcp://HOST:8786."
    data: Annotated[Path | None, Parameter(group=FILES)] = None
    "Folder with the data sets (default: data)."
    download: Annotated[Flag, Parameter(group=FILES)] = False
    "Fetch missing data from its official place."
    out: Annotated[Path | None, Parameter(group=FILES)] = None
    "Folder for everything (default: runs/NAME, with -SCALE if there is one)."
    json: Annotated[AsJson, Parameter(group=FILES)] = False
    "Print the results as one JSON document; messages go to stderr."


def need(extra: str, *packages: str) -> None:
    """Raise, before any work, if packages of one of Prunus' extras are not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise SettingError(
            f"this command needs what is not installed: {', '.join(missing)}. Run "
            f"{how_to_install(extra)}"
        )


_MOST_THREADS = 1024


def check_threads(threads: int | None) -> None:
    """Raise if that many threads make no sense; None stands for the default."""
    if threads is not None and not 1 <= threads <= _MOST_THREADS:
        raise SettingError(f"--threads {threads}: a process has from 1 to {_MOST_THREADS} threads")


def use_threads(threads: int | None, engine: Mapping[str, Any] | None) -> None:
    """Half of the cores unless somebody says otherwise.

    With all of them a small network can be ten times slower on a machine that has something else
    to do, because each thread waits for the last one. The number does not depend on how busy the
    machine is, so that a run that is resumed there still equals an uninterrupted one.
    """
    import torch

    from prunus.sweeps.executors.local import available_cores

    check_threads(threads)
    alone = not isinstance(engine, Mapping) or engine.get("devices", 1) == 1
    if threads is None and alone and "OMP_NUM_THREADS" not in os.environ:
        threads = max(1, available_cores() // 2)
    if threads is not None:
        torch.set_num_threads(threads)
