"""Tasks by name."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

from torch import nn

from prunus.errors import SettingError
from prunus.files import expanded
from prunus.lookup import import_named, unknown
from prunus.tasks.builtin import TASKS
from prunus.tasks.data import (
    DATA_SETS,
    DataOptions,
    ImageFolderData,
    Loader,
    LoaderOptions,
    SplitName,
    load_data,
)
from prunus.tasks.networks import CONVNETS, NETWORKS, find_network
from prunus.tasks.recipes import RECIPES, Recipe
from prunus.tasks.task import Task

_BATCHES = 10
"""That an epoch of a folder of images has at least, unless somebody says otherwise."""


def load_task(
    name: str,
    root: str | Path = "data",
    options: DataOptions | None = None,
    *,
    fetch_missing: bool = False,
) -> Task:
    """One of `TASKS`; `DATA/NETWORK`, for any set of images and any network; or your own function.

    `package.module:function` names a function that takes the folder of the data and a
    `DataOptions`, and returns a `Task`; modules in the current folder are found too. In
    `DATA/NETWORK` the network may be such a function as well: see `find_network`. Functions are
    taken only within `prunus.trusting(name)`.
    """
    data_name, slash, network = name.partition("/")
    if ":" in data_name:
        return _from_function(name, Path(root), options or DataOptions())
    if not slash or not network:
        raise SettingError(
            f"task={name!r} is neither DATA/NETWORK, such as 'digits/digits_convnet', nor "
            f"'package.module:function'. Data sets: {', '.join(sorted(DATA_SETS))}; and the tasks "
            f"{', '.join(TASKS)}"
        )
    if name in TASKS:
        return TASKS[name](expanded(root), options or DataOptions())
    _check_data_name(data_name)
    make = find_network(network, task=name)  # before the data are read
    data = load_data(data_name, root, options, fetch_missing=fetch_missing)
    sizes = {
        "num_classes": data.num_classes,
        "image_size": data.image_size,
        "channels": data.channels,
    }

    def build() -> nn.Module:
        return make(**sizes)

    recipe, select = recipe_for(data_name, network), select_for(network)
    task = Task(name, data, build, recipe, select=select, images=data.images)
    if data_name == "image-folder" and isinstance(data, ImageFolderData):
        return _fitted(task, data)
    return task


def _fitted(task: Task, data: ImageFolderData) -> Task:
    """The task with what its images suggest: any folder may have few of them, and small ones."""
    splits = data.splits
    task = replace(task, most_in_batch=max(1, len(splits.train) // _BATCHES))
    recipe = task.fitted(task.recipe)
    about = (
        f"{data.num_classes} classes, {len(splits.train):,} images to train with, "
        f"{len(splits.validation):,} for validation and {len(splits.test):,} for the test. "
        f"Unless you say otherwise: images of {data.image_size} pixels (--set data.image_size=N), "
        f"{recipe.batch_size} in a batch (--batch-size N)."
    )
    return replace(task, recipe=recipe, about=about)


def outline_task(name: str, *_args: object, **_options: object) -> Task:
    """What can be known of the task `DATA/NETWORK` without its data: name, network and recipe.

    Takes what `load_task` takes, to stand in its place where nothing is trained.
    """
    if name in TASKS:
        return load_task(name)
    data_name, _, network = name.partition("/")
    _check_data_name(data_name)
    if network not in NETWORKS:
        raise unknown("network", network, NETWORKS)
    recipe, select = recipe_for(data_name, network), select_for(network)
    return Task(name, _NoData(), NETWORKS[network], recipe, select=select)


def _check_data_name(name: str) -> None:
    for task in TASKS:
        if task.partition("/")[0] == name:
            raise SettingError(f"the data set {name!r} has one network only: the task {task!r}")
    if name not in DATA_SETS:
        raise unknown("data set", name, DATA_SETS)


class _NoData:
    fingerprint = ""

    def training(self, options: LoaderOptions, *, seed: int) -> Loader:
        raise NotImplementedError

    def evaluation(self, split: SplitName, options: LoaderOptions) -> Loader:
        raise NotImplementedError


def select_for(network: str) -> str:
    """What methods sparsify: in our own ConvNets the paper's choice, for images of any size."""
    return "paper" if network in CONVNETS else "auto"


def recipe_for(data: str, network: str) -> Recipe:
    """The recipe that the paper would use: by data set first, then by network."""
    if data == "digits":
        return RECIPES["digits"]
    if data in ("imagenet", "image-folder"):
        return RECIPES["imagenet"]
    if network == "conv6":
        return RECIPES["conv6"]
    return RECIPES["tickets-vgg" if network.startswith("vgg") else "tickets"]


def _from_function(spec: str, root: Path, options: DataOptions) -> Task:
    function = import_named(spec)
    try:
        inspect.signature(function).bind(root, options)
    except TypeError as error:
        raise SettingError(
            f"task={spec!r}: the function must take the folder of the data and a DataOptions, "
            f"and need no more: {error}"
        ) from error
    task = function(root, options)
    if not isinstance(task, Task):
        raise SettingError(
            f"task={spec!r}: the function returned a {type(task).__name__}, not a prunus.tasks.Task"
        )
    return task
