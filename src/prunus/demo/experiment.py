"""The lottery ticket hypothesis on handwritten digits, as an experiment of a few minutes.

For every seed: train the dense network; search tickets with CS at several mask inits; search with
IMP for the same number of epochs to the same density; draw a random mask with the same density in
every layer; and re-train all of them alone, from the weights after the first epoch and for the
epochs that remain, so that every subnetwork has the budget of the dense network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from prunus.demo.settings import Settings
from prunus.gates import strip
from prunus.methods import (
    ContinuousSparsification,
    IterativeMagnitudePruning,
    MagnitudePruning,
    Method,
)
from prunus.tasks import RECIPES, Recipe
from prunus.tasks.data import DataOptions, LoaderOptions, load_data
from prunus.tasks.networks import build_network
from prunus.ticket import Manifest, Ticket
from prunus.training import Engine, EngineSettings, Trainer
from prunus_runtime.atomic import write_atomically

TASK = "digits/digits_convnet"
ORDERS_APART = 1000
"""Between the orders of images in two rounds; more than there are seeds."""

Advance = Callable[[str, int], None]
"""Told what is going on, and how many epochs of work were done since the last call."""


@dataclass(frozen=True)
class Result:
    """One subnetwork, re-trained; or the dense network."""

    method: str
    seed: int
    mask_init: float | None
    """Of the CS run that this belongs to."""
    density: float
    accuracy: float
    """Test accuracy, after re-training from `w^(k)`."""
    search_accuracy: float | None
    """Test accuracy at the end of the search, on the hard mask."""
    epochs: int
    """Spent on search and re-training together."""
    layers: dict[str, float] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)
    """Test accuracy after each epoch of re-training."""
    search_curve: list[float] = field(default_factory=list)
    """Density of the hard mask after each epoch of the search, and in the end."""
    ticket: str | None = None


class Experiment:
    """Runs the stages one by one; those whose results are in `folder` already are not repeated."""

    def __init__(self, folder: Path, settings: Settings, advance: Advance) -> None:
        self.folder = folder
        self.settings = settings
        self.advance = advance
        self.engine = Engine(EngineSettings(accelerator="cpu"))
        self.recipe = RECIPES["tickets"].changed(
            epochs=settings.epochs, batch_size=settings.batch_size, lr=settings.lr
        )
        self.data = load_data("digits", folder, DataOptions(train_images=settings.train_images))
        self.test = self.data.evaluation("test", LoaderOptions(batch_size=1024))
        steps_per_epoch = settings.train_images // settings.batch_size
        self.steps = settings.epochs * steps_per_epoch
        self.rewind_step = settings.rewind_epoch * steps_per_epoch

    def run(self, seed: int) -> list[Result]:
        """Everything for one seed."""
        dense = self._stage("dense", seed, None, partial(self._dense, seed))
        results = [dense]
        for s0 in self.settings.mask_inits:
            cs = self._stage("cs", seed, s0, partial(self.cs, seed, s0))
            found = self._ticket(cs).mask
            imp = self._stage("imp", seed, s0, partial(self.imp, seed, s0, found.density))
            weights = self._ticket(dense).weights
            control = Ticket(found.shuffled(seed), weights, Manifest(TASK, "random", seed=seed))
            random = self._stage("random", seed, s0, partial(self._retrain, control, seed, s0))
            results += [cs, imp, random]
        return results

    # The stages

    def _dense(self, seed: int) -> tuple[Result, Ticket]:
        # Pruned to all of its weights it is dense, and w^(k) is remembered for the controls.
        method = MagnitudePruning(
            self.network(seed), steps=self.steps, target_density=1.0, rewind_step=self.rewind_step
        )
        curve: list[float] = []
        note = partial(self._note_accuracy, method.model, curve)
        self._train(method.model, seed, f"seed {seed}: dense", self.recipe, note, method)
        ticket = method.ticket(task=TASK, seed=seed)
        epochs = self.settings.epochs
        return Result("dense", seed, None, 1.0, curve[-1], None, epochs, curve=curve), ticket

    def cs(self, seed: int, mask_init: float) -> tuple[Result, Ticket]:
        method = ContinuousSparsification(
            self.network(seed),
            steps=self.steps,
            mask_init=mask_init,
            rewind_step=self.rewind_step,
        )
        return self.search(method, seed, mask_init)

    def imp(self, seed: int, mask_init: float, density: float) -> tuple[Result, Ticket]:
        rate = 1 - density ** (1 / self.settings.rounds)
        method = IterativeMagnitudePruning(
            self.network(seed), steps=self.steps, rate=rate, rewind_step=self.rewind_step
        )
        return self.search(method, seed, mask_init)

    def search(self, method: Method, seed: int, mask_init: float) -> tuple[Result, Ticket]:
        curve: list[float] = []

        def note() -> None:
            curve.append(method.stats().hard_density)

        for number in range(1, self.settings.rounds + 1):
            doing = f"seed {seed}: {method.name} s0={mask_init:g} round {number}"
            # Every first round sees the images in the order that the dense network saw them in.
            order = seed + ORDERS_APART * (number - 1)
            self._train(method.model, order, doing, self.recipe, note, method)
            trained = strip(deepcopy(method.model))
            mask = method.end_round()
        # IMP cuts as the round ends, so what the search found is the new mask on what it trained.
        found = self.engine.accuracy(mask.apply(trained), self.test)
        curve[-1] = mask.density
        ticket = method.ticket(task=TASK, seed=seed, metrics={"accuracy": found})
        return self._retrain(ticket, seed, mask_init, found, curve)

    def _retrain(
        self,
        ticket: Ticket,
        seed: int,
        mask_init: float,
        search_accuracy: float | None = None,
        search_curve: Sequence[float] = (),
    ) -> tuple[Result, Ticket]:
        name = ticket.manifest.method
        curve: list[float] = []
        model = ticket.apply(self.network(seed))
        doing = f"seed {seed}: {name} s0={mask_init:g} re-training"
        rest = self.recipe.after(self.settings.rewind_epoch)
        self._train(model, seed, doing, rest, partial(self._note_accuracy, model, curve))
        result = Result(
            method=name,
            seed=seed,
            mask_init=mask_init,
            density=ticket.mask.density,
            accuracy=curve[-1],
            search_accuracy=search_accuracy,
            epochs=len(search_curve) + len(curve),
            layers={layer.name: layer.density for layer in ticket.mask.layers},
            curve=curve,
            search_curve=list(search_curve),
        )
        return result, ticket

    # Details

    def network(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        data = self.data
        return build_network(
            TASK.partition("/")[2],
            num_classes=data.num_classes,
            image_size=data.image_size,
            channels=data.channels,
        )

    def _train(
        self,
        model: nn.Module,
        order: int,
        doing: str,
        recipe: Recipe,
        note: Callable[[], None],
        method: Method | None = None,
    ) -> None:
        """Train by `recipe`, and `note` something after each epoch."""
        options = LoaderOptions(batch_size=self.settings.batch_size)
        loader = self.data.training(options, seed=order)
        trainer = Trainer(self.engine, model, loader, recipe, method=method)
        for _ in trainer.steps():
            if trainer.at_epoch_end:
                note()
                self.advance(doing, 1)

    def _note_accuracy(self, model: nn.Module, curve: list[float]) -> None:
        curve.append(self.engine.accuracy(model, self.test))

    def _stage(
        self,
        method: str,
        seed: int,
        mask_init: float | None,
        work: Callable[[], tuple[Result, Ticket]],
    ) -> Result:
        name = f"{method}-seed{seed}" if mask_init is None else f"{method}{mask_init:+g}-seed{seed}"
        record = self.folder / "results" / f"{name}.json"
        stamp = json.loads(json.dumps(asdict(self.settings)))
        if record.exists():
            content = json.loads(record.read_text())
            if content["settings"] == stamp:
                self.advance(f"{name} is there already", content["result"]["epochs"])
                return Result(**content["result"])
        result, ticket = work()
        path = ticket.save(self.folder / "tickets" / f"{name}.safetensors")
        result = replace(result, ticket=str(path.relative_to(self.folder)))
        write_atomically(record, json.dumps({"settings": stamp, "result": asdict(result)}))
        return result

    def _ticket(self, result: Result) -> Ticket:
        assert result.ticket is not None
        return Ticket.load(self.folder / result.ticket)
