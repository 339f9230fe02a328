"""What a task is: data, a network, how it is optimised, and how good it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from prunus.errors import SettingError
from prunus.tasks.batch import model_inputs
from prunus.tasks.data.protocol import Data
from prunus.tasks.losses import Loss, cross_entropy
from prunus.tasks.metrics import Metric, accuracy
from prunus.tasks.recipes import RECIPES, Recipe
from prunus_runtime.images import Images


@dataclass(frozen=True)
class Task:
    """Data, a network, the recipe that trains it, its loss and its metrics."""

    name: str
    data: Data
    build: Callable[[], nn.Module]
    """Makes a new network with random weights, from PyTorch's global generator."""
    recipe: Recipe
    loss: Loss = cross_entropy
    """`loss(output, batch)`: a mean over the samples of the batch."""
    metrics: tuple[Metric, ...] = (accuracy,)
    """What is measured on held-out data; the first metric decides what is better."""
    inputs: Callable[[Any], Any] = model_inputs
    """The part of a batch that goes into the model: a tensor, or a tuple or dict of arguments."""
    select: str = "auto"
    """Which weights are sparsified unless the method's settings say otherwise: a rule of
    `prunus.choose`, such as `"paper"` (convolutions) or `"linear"`; `"auto"` is by the kind of
    network."""
    images: Images | None = None
    """How an image becomes the network's input, and what its classes are called: a deployed file
    knows it, so that it can be given JPEGs."""
    about: str = ""
    """What a person should know who starts a run: what was found in the data, and what follows."""
    most_in_batch: int | None = None
    """Samples that a batch of any recipe has at most, unless somebody says how many."""

    def __post_init__(self) -> None:
        names = [metric.info.name for metric in self.metrics]
        if not names or len(set(names)) < len(names):
            raise SettingError(
                f"task {self.name!r} needs one or more metrics, each with its own name, not {names}"
            )

    @property
    def pruning_recipe(self) -> Recipe:
        """The task's recipe with a `commit_epoch`; on CIFAR, the paper's recipe for pruning."""
        if self.recipe.commit_epoch is not None:
            return self.recipe
        of_cifar = self.name.startswith(("cifar10/", "cifar100/"))
        if of_cifar and self.recipe in (RECIPES["tickets"], RECIPES["tickets-vgg"]):
            return RECIPES["pruning"].changed(batch_size=self.recipe.batch_size)
        return self.recipe.for_pruning()

    def fitted(self, recipe: Recipe) -> Recipe:
        """A recipe with batches that suit the data."""
        if self.most_in_batch is None or recipe.batch_size <= self.most_in_batch:
            return recipe
        return recipe.changed(batch_size=self.most_in_batch)

    def loss_for(self, recipe: Recipe) -> Loss:
        """The loss to train with, smoothed if the recipe asks for it."""
        if not recipe.label_smoothing:
            return self.loss
        if "label_smoothing" not in inspect.signature(self.loss).parameters:
            raise SettingError(
                f"recipe.label_smoothing={recipe.label_smoothing:g}: the loss of task "
                f"{self.name!r} does not take it; leave it out, or write a loss(output, batch, *, "
                "label_smoothing=0.0)"
            )
        return partial(self.loss, label_smoothing=recipe.label_smoothing)
