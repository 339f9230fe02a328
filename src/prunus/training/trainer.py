"""The training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from prunus.methods import Method
from prunus.tasks.batch import call, count_samples, model_inputs, split_batch
from prunus.tasks.data import Loader
from prunus.tasks.losses import Loss, cross_entropy
from prunus.tasks.recipes import Recipe
from prunus.training.averaging import WeightAverage
from prunus.training.engine import Engine
from prunus.training.health import diagnose, diverged

_NEVER = 2**62


class Trainer:
    """Trains a model for one stage by a recipe, with or without a method on it.

    Make a new one for each stage: momentum belongs to weights and scores that a new round resets,
    and `harden` changes what has gradients, which DDP must know when it wraps the model.

    `loss(output, batch)` and `inputs(batch)` are those of a task. `first_epoch` is the number of
    the first epoch of data, so that rounds can have different orders. `group_options` go to the
    method's `param_groups`.

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
        loss: Loss = cross_entropy,
        inputs: Callable[[Any], Any] = model_inputs,
        method: Method | None = None,
        group_options: Mapping[str, Any] | None = None,
        first_epoch: int = 0,
    ) -> None:
        self.engine, self.model, self.loader, self.recipe = engine, model, loader, recipe
        self.loss, self.inputs = loss, inputs
        self.method, self.first_epoch = method, first_epoch
        self.step = 0
        options: dict[str, Any] = {"weight_decay": recipe.weight_decay}
        if method is None:
            trained = [p for p in model.parameters() if p.requires_grad]
            groups = [{"params": trained, **options}]
        else:
            groups = method.param_groups(recipe.lr, **options, **(group_options or {}))
        self.module = engine.wrap(model)
        self.optimizer = recipe.make_optimizer(groups)
        self._highest_rates = [group["lr"] for group in self.optimizer.param_groups]
        self._set_rates(0)
        self.average = WeightAverage(model, recipe.ema) if recipe.ema is not None else None
        self._stepper: Any = engine.fabric.setup_optimizers(self.optimizer)
        self._loss_sum = torch.zeros((), device=engine.device)
        self._first_bad = torch.full((), _NEVER, device=engine.device)  # read only now and then

    @property
    def epoch(self) -> int:
        """Whole epochs done."""
        return self.step // len(self.loader)

    @property
    def at_epoch_end(self) -> bool:
        return self.step % len(self.loader) == 0

    def steps(self) -> Iterator[Tensor]:
        """Train from here to the end of the recipe; yields the loss after each step.

        At the end the model has the average of its weights, if the recipe asks for one.
        """
        self.module.train()
        while self.epoch < self.recipe.epochs:
            number, start = self.first_epoch + self.epoch, self.step % len(self.loader)
            if start == 0:
                self._loss_sum.zero_()
            for batch in self.loader.epoch(number, start):
                loss = self._forward_backward(batch)
                self._update()
                self.step += 1
                self._loss_sum += loss
                yield loss
        if self.average is not None:
            self.average.apply()

    def averaged(self) -> AbstractContextManager[None]:
        """Within this context the model has the average of its weights, if there is one."""
        return nullcontext() if self.average is None else self.average.applied()

    def mean_loss(self) -> float:
        """The mean over this epoch's steps and all processes, penalty included."""
        steps = self.step % len(self.loader) or len(self.loader)
        return float(self.engine.reduce(self._loss_sum, "mean")) / steps

    def _forward_backward(self, batch: Any) -> Tensor:
        engine, total = self.engine, torch.zeros((), device=self.engine.device)
        parts, samples = split_batch(batch, engine.settings.accumulate), count_samples(batch)
        for number, part in enumerate(parts, 1):
            last = number == len(parts)
            wait = not last and engine.world_size > 1
            with engine.fabric.no_backward_sync(self.module, enabled=wait):  # type: ignore[arg-type]
                inputs = self.inputs(part)
                loss = self.loss(call(self.module, inputs), part)
                loss = loss * (count_samples(part) / samples)
                if last and self.method is not None:
                    loss = loss + self.method.penalty()
                self._check(loss.detach(), inputs)
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
        self._set_rates(self.step + 1)
        if self.method is not None:
            self.method.step()
        if self.average is not None:
            self.average.update(self.step + 1)

    def _set_rates(self, step: int) -> None:
        for group, highest in zip(self.optimizer.param_groups, self._highest_rates, strict=True):
            group["lr"] = self.recipe.rate(highest, step, len(self.loader))

    def first_bad_step(self) -> int | None:
        """The first step with a bad loss (not finite) in any process. Call it in all of them."""
        first = -self.engine.highest(-int(self._first_bad))
        return None if first == _NEVER else first

    def _check(self, loss: Tensor, inputs: Any) -> None:
        engine, step = self.engine, self.step + 1
        self._first_bad.masked_fill_(~loss.isfinite() & (self._first_bad > step), step)
        first = self.first_bad_step() if engine.meets_after(step) else None
        if first is None:
            return
        with engine.fabric.autocast():
            finding = diagnose(self.model, inputs, late=first < step)
        mine = int(self._first_bad) == first
        raise diverged(step, first, engine.first(finding if mine else None) or finding)

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Position, optimiser and average; model and method have their own.

        Call it in all processes, because each has seen different samples.
        """
        return {
            "step": self.step,
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.state_dict() if self.average else None,
            "precision": self.engine.fabric.strategy.precision.state_dict(),
            "loss_sums": self.engine.gather(float(self._loss_sum)),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.step = state["step"]
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.engine.fabric.strategy.precision.load_state_dict(state["precision"])
        sums, rank = state["loss_sums"], self.engine.rank
        self._loss_sum.fill_(sums[rank] if rank < len(sums) else sum(sums) / len(sums))
