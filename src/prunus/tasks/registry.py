"""Tasks by name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from prunus.errors import SettingError
from prunus.lookup import import_function, unknown
from prunus.tasks.data import (
    DATA_SETS,
    Data,
    DataOptions,
    Loader,
    LoaderOptions,
    SplitName,
    load_data,
)
from prunus.tasks.networks import NETWORKS, build_network
from prunus.tasks.recipes import RECIPES, Recipe


@dataclass(frozen=True)
class Task:
    """A model, its data and the recipe that trains it."""

    name: str
    data: Data
    build: Callable[[], nn.Module]
    """Makes a new network with random weights, from PyTorch's global generator."""
    recipe: Recipe

    @property
    def pruning_recipe(self) -> Recipe:
        """The task's recipe, with a time to fix the mask; for CIFAR's networks the paper's own."""
        if self.recipe.commit_epoch is not None:
            return self.recipe
        of_cifar = self.name.startswith(("cifar10/", "cifar100/"))
        if of_cifar and self.recipe in (RECIPES["tickets"], RECIPES["tickets-vgg"]):
            return RECIPES["pruning"].changed(batch_size=self.recipe.batch_size)
        return self.recipe.for_pruning()


def load_task(
    name: str,
    root: str | Path = "data",
    options: DataOptions | None = None,
    *,
    fetch_missing: bool = False,
) -> Task:
    """The task `DATA/NETWORK`, for any data set and any network; or that of your own function.

    `package.module:function` names a function that takes the folder of the data and a
    `DataOptions`, and returns a `Task`; modules in the current folder are found too. In
    `DATA/NETWORK` the network may be such a function as well: see `build_network`.
    """
    data_name, slash, network = name.partition("/")
    if ":" in data_name:
        return _from_function(name, Path(root), options or DataOptions())
    if not slash or not network:
        raise SettingError(
            f"task={name!r} is neither DATA/NETWORK, such as 'digits/digits_convnet', nor "
            f"'package.module:function'. Data sets: {', '.join(sorted(DATA_SETS))}"
        )
    if not (network in NETWORKS or {":", "/"} & set(network)):
        raise unknown("network", network, NETWORKS)  # before the data are read
    data = load_data(data_name, root, options, fetch_missing=fetch_missing)
    sizes = {
        "num_classes": data.num_classes,
        "image_size": data.image_size,
        "channels": data.channels,
    }

    def build() -> nn.Module:
        with_current_folder()
        return build_network(network, **sizes)

    return Task(name, data, build, recipe_for(data_name, network))


def outline_task(name: str, *_args: object, **_options: object) -> Task:
    """What can be known of the task `DATA/NETWORK` without its data: name, network and recipe.

    Takes what `load_task` takes, to stand in its place where nothing is trained.
    """
    data_name, _, network = name.partition("/")
    if data_name not in DATA_SETS:
        raise unknown("data set", data_name, DATA_SETS)
    if network not in NETWORKS:
        raise unknown("network", network, NETWORKS)
    return Task(name, _NoData(), NETWORKS[network], recipe_for(data_name, network))


class _NoData:
    num_classes = image_size = channels = 0
    fingerprint = ""

    def training(self, options: LoaderOptions, *, seed: int) -> Loader:
        raise NotImplementedError

    def evaluation(self, split: SplitName, options: LoaderOptions) -> Loader:
        raise NotImplementedError


def recipe_for(data: str, network: str) -> Recipe:
    """The recipe that the paper would use: by data set first, then by network."""
    if data == "digits":
        return RECIPES["digits"]
    if data in ("imagenet", "image-folder"):
        return RECIPES["imagenet"]
    if network == "conv6":
        return RECIPES["conv6"]
    return RECIPES["tickets-vgg" if network.startswith("vgg") else "tickets"]


def with_current_folder() -> None:
    """Let modules in the current folder be imported, as `python -m` does."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def _from_function(spec: str, root: Path, options: DataOptions) -> Task:
    with_current_folder()
    function = import_function(spec)
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
