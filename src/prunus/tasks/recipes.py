"""How a network is optimised: recipes by name, the paper's and others."""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, create_model, model_validator
from pydantic.fields import FieldInfo

from prunus.errors import SettingError
from prunus.schema import ADDED, Schema

Positive = Annotated[float, Field(gt=0)]
Schedule = Literal["drops", "cosine", "one-cycle", "constant"]

_ONE_CYCLE_RISE = 0.3
"""The fraction of the epochs in which a one-cycle schedule rises if there is no `warmup`."""


class Recipe(Schema):
    """An optimiser, a batch size, and a learning rate that follows a schedule.

    All times count epochs, and need not be whole: see `scaled`, which shortens a recipe in
    proportion.
    """

    epochs: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    """Samples in one step, counting all devices."""
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Positive = 0.1
    """The highest learning rate of the schedule."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Of SGD; Adam and AdamW have their own."""
    nesterov: Annotated[bool, ADDED] = False
    weight_decay: float = Field(default=1e-4, ge=0)
    schedule: Annotated[Schedule, ADDED] = "drops"
    """`drops`: times `drop_factor` at each of `drops`. `cosine`: half a cosine down to zero.
    `one-cycle`: linearly up (in `warmup`, or 30 % of the epochs), then linearly down to zero."""
    warmup: Annotated[float | None, Field(gt=0), ADDED] = None
    """Epochs in which the learning rate rises linearly, before the rest of the schedule."""
    drops: tuple[Positive, ...] = ()
    drop_factor: Positive = 0.1
    label_smoothing: Annotated[float, Field(ge=0, lt=1), ADDED] = 0.0
    """Of the cross-entropy."""
    ema: Annotated[float | None, Field(gt=0, lt=1), ADDED] = None
    """Decay of a moving average of the weights, which a stage evaluates and ends with."""
    begins_at: Annotated[int, Field(ge=0), ADDED] = 0
    """Epochs of the schedule that lie before the start of this recipe: see `after`."""
    commit_epoch: int | None = Field(default=None, ge=1)
    """For pruning: when the mask is fixed. The epochs after it fine-tune."""
    fine_tune_lr: Positive | Literal["rewound"] = 0.001
    """A constant rate; or `rewound`: the rates of as many epochs before `commit_epoch`, again."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.commit_epoch is not None and self.commit_epoch >= self.epochs:
            raise ValueError(
                f"commit_epoch={self.commit_epoch} leaves none of {self.epochs} epochs to fine-tune"
            )
        commit = self.commit_epoch
        if self.fine_tune_lr == "rewound" and commit and self.epochs > 2 * commit:
            raise ValueError(
                f"fine_tune_lr=rewound repeats epochs before commit_epoch={commit}, which are "
                f"fewer than the {self.epochs - commit} after it"
            )
        if self.drops and self.schedule != "drops":
            raise ValueError(f"schedule={self.schedule} has no drops: leave them out, or drops=[]")
        if self.nesterov and (self.optimizer != "sgd" or not self.momentum):
            raise ValueError("nesterov needs optimizer=sgd with a momentum above 0")
        if self.warmup is not None and self.warmup >= self.begins_at + self.epochs:
            raise ValueError(f"warmup={self.warmup:g} takes all of {self.epochs} epochs")
        return self

    def changed(self, **changes: Any) -> Recipe:
        """A copy with other values, checked. New `epochs` scale all times: see `scaled`."""
        given = RecipeChanges.parse(changes, within="recipe").model_dump(exclude_unset=True)
        base = self.model_dump()
        if "epochs" in given:
            base |= self._scaled(given["epochs"])
        if given.get("schedule", self.schedule) != self.schedule:
            base["drops"] = ()  # they belong to the other schedule
        return Recipe.parse({**base, **given}, within="recipe")

    def scaled(self, epochs: int) -> Recipe:
        """The same recipe for another number of epochs, with all times in proportion."""
        return self.changed(epochs=epochs)

    def _scaled(self, epochs: int) -> dict[str, Any]:
        factor = epochs / self.epochs
        return {
            "epochs": epochs,
            "drops": tuple(drop * factor for drop in self.drops),
            "warmup": self.warmup and self.warmup * factor,
            "commit_epoch": self.commit_epoch and _inside(self.commit_epoch * factor, epochs),
        }

    def after(self, epoch: int) -> Recipe:
        """What is left of this recipe after `epoch`, for re-training from `w^(k)`."""
        passed = [drop for drop in self.drops if drop <= epoch]
        changes = {
            "epochs": self.epochs - epoch,
            "begins_at": self.begins_at + epoch,
            "drops": tuple(drop - epoch for drop in self.drops if drop > epoch),
            "lr": self.lr * self.drop_factor ** len(passed),
            "commit_epoch": None,
        }
        return Recipe.parse({**self.model_dump(), **changes}, within="recipe")

    # Pruning, and its two parts

    def for_pruning(self) -> Recipe:
        """The same epochs in the paper's proportions for pruning: the mask is fixed after 80 %."""
        commit = _inside(0.8 * self.epochs, self.epochs)
        return self.changed(commit_epoch=commit, fine_tune_lr=self.lr / 100)

    def searching(self) -> Recipe:
        """The part before the mask is fixed. Drops stay where they are; a schedule that goes to
        zero gets there when the mask is fixed."""
        commit = self._commit()
        warmup = None if self.warmup is None else self.warmup * commit / self.epochs
        return self.model_copy(update={"epochs": commit, "warmup": warmup, "commit_epoch": None})

    def fine_tuning(self) -> Recipe:
        """The part after: a small constant rate, or the rates of the last epochs again."""
        if self.fine_tune_lr == "rewound":
            search = self.searching()
            return search.after(2 * search.epochs - self.epochs)
        changes = {"epochs": self.epochs - self._commit(), "lr": self.fine_tune_lr, "drops": ()}
        constant = {"schedule": "constant", "warmup": None, "commit_epoch": None}
        return self.model_copy(update={**changes, **constant})

    def _commit(self) -> int:
        if self.commit_epoch is None:
            raise SettingError(
                "recipe.commit_epoch is not set: pruning needs the epoch at which the mask is "
                "fixed; use the recipe 'pruning', or more than one epoch"
            )
        return self.commit_epoch

    # What the training loop asks for

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        if self.optimizer == "adam":
            return torch.optim.Adam(groups, lr=self.lr)
        if self.optimizer == "adamw":
            return torch.optim.AdamW(groups, lr=self.lr)
        return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov)

    def rate(self, highest: float, step: int, steps_per_epoch: int) -> float:
        """The learning rate of training step number `step` (from 0), for parameters with `highest`
        as their highest rate."""
        position = self.begins_at * steps_per_epoch + step
        end = (self.begins_at + self.epochs) * steps_per_epoch
        rise = self._rise() * steps_per_epoch
        # Factor by factor, to round as PyTorch's MultiStepLR does.
        milestones = Counter(round(epoch * steps_per_epoch) for epoch in self.drops)
        for milestone, times in sorted(milestones.items()):
            if milestone <= step:
                highest *= self.drop_factor**times
        if position < rise:
            return highest * min(1.0, (position + 1) / rise)
        if self.schedule == "cosine":
            return highest * (1 + math.cos(math.pi * (position - rise) / (end - rise))) / 2
        if self.schedule == "one-cycle":
            return highest * (end - position) / (end - rise)
        return highest

    def _rise(self) -> float:
        if self.warmup is None and self.schedule == "one-cycle":
            return _ONE_CYCLE_RISE * (self.begins_at + self.epochs)
        return self.warmup or 0.0


def _optional(field: FieldInfo) -> tuple[Any, FieldInfo]:
    return field.annotation, FieldInfo.merge_field_infos(field, default=None)


RecipeChanges: type[Schema] = create_model(
    "RecipeChanges",
    __base__=Schema,
    **{name: _optional(field) for name, field in Recipe.model_fields.items()},  # type: ignore[call-overload]
)
"""Some settings of a recipe, each checked on its own."""


def _inside(epoch: float, epochs: int) -> int | None:
    """The nearest whole epoch with at least one on each side; None if there is only one epoch."""
    return max(1, min(epochs - 1, round(epoch))) if epochs > 1 else None


_TICKETS = Recipe(epochs=85, batch_size=128, drops=(56, 71))

RECIPES: dict[str, Recipe] = {
    "tickets": _TICKETS,
    "tickets-vgg": _TICKETS.changed(batch_size=64),
    "pruning": Recipe(epochs=200, batch_size=128, drops=(80, 120), commit_epoch=160),
    "conv6": Recipe(epochs=40, batch_size=60, optimizer="adam", lr=3e-4, weight_decay=0),
    "imagenet": Recipe(epochs=90, batch_size=256, drops=(30, 60)),
    "digits": _TICKETS.scaled(12).changed(batch_size=25, commit_epoch=9, fine_tune_lr=0.01),
    "modern": Recipe(
        epochs=20,
        batch_size=128,
        lr=0.2,
        nesterov=True,
        weight_decay=5e-4,
        schedule="cosine",
        warmup=2,
    ),
}
"""The paper's, for ticket search (section 5.1; VGG has smaller batches), pruning (5.2), Conv-6
(appendix D) and ImageNet (5.3); one that takes seconds, for digits; and one like those that people
use for image classifiers today."""
