"""The cpu protocol: ResNet-20 on real CIFAR-10 at 16x16 pixels, small enough for two cores.

What the comparisons of methods share: the task, the phases of training, and how a network is
judged. Every method is trained by the product's own engine and loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from prunus import Ticket
from prunus.gates import hard
from prunus.methods import Method
from prunus.tasks import RECIPES, load_task
from prunus.tasks.data import DataOptions
from prunus.tasks.recipes import Recipe
from prunus.training import Engine, EngineSettings, Trainer
from prunus.training.randomness import seed_everything


@dataclass(frozen=True)
class Scale:
    """How much of the protocol to do. All methods get the same."""

    images: int = 10_000
    epochs: int = 8
    """Of one round of search; the dense network gets as many."""
    rewind_epoch: int = 1
    fine_tune_epochs: int = 2
    fine_tune_lr: float = 0.01
    validation_images: int = 2_000


class Protocol:
    """The task at one scale, and what can be done with a network."""

    def __init__(self, data: Path, scale: Scale) -> None:
        torch.set_num_threads(1)  # several runs share the cores
        self.scale = scale
        options = DataOptions(
            image_size=16, train_images=scale.images, validation_images=scale.validation_images
        )
        self.task = load_task("cifar10/resnet20", data, options)
        self.engine = Engine(EngineSettings(accelerator="cpu", channels_last=True), [])
        self.recipe = RECIPES["tickets"].scaled(scale.epochs)
        self.fine_tuning = self.recipe.changed(
            epochs=scale.fine_tune_epochs, lr=scale.fine_tune_lr, drops=()
        )
        self._evaluation = {
            split: self.task.data.evaluation(split, self.engine.loader_options(512))
            for split in ("validation", "test")
        }

    def steps(self, epochs: float) -> int:
        """Training steps in some epochs."""
        return round(epochs * len(self._loader(0)))

    @property
    def round_steps(self) -> int:
        return self.steps(self.scale.epochs)

    def _loader(self, seed: int) -> Any:
        options = self.engine.loader_options(self.recipe.batch_size)
        return self.task.data.training(options, seed=seed)

    def network(self, seed: int) -> nn.Module:
        """The initial network of a seed, the same for every method."""
        seed_everything(seed)
        return self.engine.prepare(self.task.build())

    def train(
        self,
        model: nn.Module,
        recipe: Recipe,
        seed: int,
        *,
        method: Method | None = None,
        group_options: Mapping[str, Any] | None = None,
        first_epoch: int = 0,
    ) -> None:
        """One phase; the order of images depends on seed and epoch alone."""
        trainer = Trainer(
            self.engine,
            model,
            self._loader(seed),
            recipe,
            method=method,
            group_options=group_options,
            first_epoch=first_epoch,
        )
        for _ in trainer.steps():
            pass

    def accuracy(self, model: nn.Module, split: str = "test") -> float:
        """With the hard mask."""
        with hard(model):
            return self.engine.accuracy(model, self._evaluation[split])

    def judge(self, model: nn.Module) -> Callable[[], float]:
        """Accuracy on held-out images, for methods that choose among masks."""
        return lambda: self.engine.accuracy(model, self._evaluation["validation"])

    def fine_tune(self, model: nn.Module, method: Method, seed: int) -> float:
        """Train on with the mask that the method is hardened to; the test accuracy."""
        self.train(model, self.fine_tuning, seed, method=method, first_epoch=self.scale.epochs)
        return self.accuracy(model)

    def retrain(self, ticket: Ticket, seed: int) -> float:
        """Train a ticket from `w^(k)` with what the recipe has left; the test accuracy."""
        model = ticket.apply(self.network(seed))
        k = self.scale.rewind_epoch
        self.train(model, self.recipe.after(k), seed, first_epoch=k)
        return self.accuracy(model)
