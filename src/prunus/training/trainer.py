"""The training loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prunus.methods import Method
from prunus.tasks.data import Loader
from prunus.tasks.recipes import Recipe
from prunus.training.engine import Engine
from prunus.training.health import diagnose, diverged

_NEVER = 2**62


class Trainer:
    """Trains a model for one round of a recipe, with a method at work on it or without.

    Everything new for each round: the optimiser, because momentum belongs to weights and scores
    that a new round resets, and the wrapping in DDP, because `harden` changes what has gradients.
    `first_epoch` numbers the epochs of data, so that rounds need not repeat each other's order;
    `group_options` go to the method's `param_groups`.

        for _ in trainer.steps():
            if trainer.at_epoch_end: ...
    """

    def __init__(
        self,
        engine: Engine,
        model: nn.Module,
        loader: Loader,
        recipe: Recipe,
        *,
        method: Method | None = None,
        group_options: Mapping[str, Any] | None = None,
        first_epoch: int = 0,
    ) -> None:
        self.engine, self.model, self.loader, self.recipe = engine, model, loader, recipe
        self.method, self.first_epoch = method, first_epoch
        self.step = 0
        options = {"weight_decay": recipe.weight_decay}
        if method is None:
            trained = [p for p in model.parameters() if p.requires_grad]
            groups = [{"params": trained, **options}]
        else:
            groups = method.param_groups(recipe.lr, **options, **(group_options or {}))
        self.module = engine.wrap(model)
        self.optimizer = recipe.make_optimizer(groups)
        self.scheduler = recipe.make_scheduler(self.optimizer, len(loader))
        self._stepper: Any = engine.fabric.setup_optimizers(self.optimizer)
        self._loss_sum = torch.zeros((), device=engine.device)
        self._first_bad = torch.full((), _NEVER, device=engine.device)  # read now and then only

    @property
    def epoch(self) -> int:
        """Whole epochs done."""
        return self.step // len(self.loader)

    @property
    def at_epoch_end(self) -> bool:
        return self.step % len(self.loader) == 0

    def steps(self) -> Iterator[Tensor]:
        """Train to the end of the recipe from where we are; yields the loss after each step."""
        self.module.train()
        while self.epoch < self.recipe.epochs:
            number, start = self.first_epoch + self.epoch, self.step % len(self.loader)
            if start == 0:
                self._loss_sum.zero_()
            for images, labels in self.loader.epoch(number, start):
                loss = self._forward_backward(images, labels)
                self._update()
                self.step += 1
                self._loss_sum += loss
                yield loss

    def mean_loss(self) -> float:
        """Of the steps of this epoch, on all processes; penalty included."""
        steps = self.step % len(self.loader) or len(self.loader)
        return float(self.engine.reduce(self._loss_sum, "mean")) / steps

    def _forward_backward(self, images: Tensor, labels: Tensor) -> Tensor:
        engine, total = self.engine, torch.zeros((), device=self.engine.device)
        parts = engine.settings.accumulate
        batches = list(zip(images.chunk(parts), labels.chunk(parts), strict=True))
        for number, (x, y) in enumerate(batches, 1):
            last = number == len(batches)
            wait = not last and engine.world_size > 1
            with engine.fabric.no_backward_sync(self.module, enabled=wait):  # type: ignore[arg-type]
                loss = F.cross_entropy(self.module(x), y) * (len(y) / len(labels))
                if last and self.method is not None:
                    loss = loss + self.method.penalty()
                self._check(loss.detach(), x)
                engine.fabric.backward(loss)
            total += loss.detach()
        return total

    def _update(self) -> None:
        clip = self.engine.settings.clip
        if clip is not None:
            self.engine.fabric.clip_gradients(
                self.module, self._stepper, max_norm=clip, error_if_nonfinite=False
            )
        self._stepper.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        if self.method is not None:
            self.method.step()

    def first_bad_step(self) -> int | None:
        """The first whose loss was not finite, in any process; to be called in all of them."""
        first = -self.engine.highest(-int(self._first_bad))
        return None if first == _NEVER else first

    def _check(self, loss: Tensor, images: Tensor) -> None:
        engine, step = self.engine, self.step + 1
        self._first_bad.masked_fill_(~loss.isfinite() & (self._first_bad > step), step)
        first = self.first_bad_step() if engine.meets_after(step) else None
        if first is None:
            return
        with engine.fabric.autocast():
            finding = diagnose(self.model, images, late=first < step)
        mine = int(self._first_bad) == first
        raise diverged(step, first, engine.first(finding if mine else None) or finding)

    # To be gone on with later

    def state_dict(self) -> dict[str, Any]:
        """Position, optimiser and schedule; model and method have their own.

        To be called in all processes, because each has seen other images.
        """
        return {
            "step": self.step,
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "precision": self.engine.fabric.strategy.precision.state_dict(),
            "loss_sums": self.engine.gather(float(self._loss_sum)),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.step = state["step"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.engine.fabric.strategy.precision.load_state_dict(state["precision"])
        sums, rank = state["loss_sums"], self.engine.rank
        self._loss_sum.fill_(sums[rank] if rank < len(sums) else sum(sums) / len(sums))
