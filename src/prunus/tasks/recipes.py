"""How a network is optimised: the recipes of the paper, by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator

from prunus.errors import SettingError
from prunus.schema import Schema

Positive = Annotated[float, Field(gt=0)]


class Recipe(Schema):
    """An optimiser, a batch size, and a learning rate that drops at some epochs.

    `drops` counts in epochs and may lie inside one, so that a short budget keeps the proportions of
    a long one: `scaled`.
    """

    epochs: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    """Images in one step, on all devices together."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: Positive = 0.1
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Of SGD; Adam has its own."""
    weight_decay: float = Field(default=1e-4, ge=0)
    drops: tuple[Positive, ...] = ()
    drop_factor: Positive = 0.1
    commit_epoch: int | None = Field(default=None, ge=1)
    """For pruning: when the mask is fixed. The epochs from there on fine-tune."""
    fine_tune_lr: Positive = 0.001

    @model_validator(mode="after")
    def _commits_before_the_end(self) -> Self:
        if self.commit_epoch is not None and self.commit_epoch >= self.epochs:
            raise ValueError(
                f"commit_epoch={self.commit_epoch} leaves none of {self.epochs} epochs to fine-tune"
            )
        return self

    def changed(self, **changes: Any) -> Recipe:
        """A copy with other values, checked. Epochs alone scale the rest: see `scaled`."""
        base = self.model_dump()
        if "epochs" in changes:
            given = Recipe.parse({"epochs": changes["epochs"], "batch_size": 1}, within="recipe")
            base |= self._scaled(given.epochs)
        return Recipe.parse({**base, **changes}, within="recipe")

    def scaled(self, epochs: int) -> Recipe:
        """The same recipe in another number of epochs: drops and commitment in proportion."""
        return self.changed(epochs=epochs)

    def _scaled(self, epochs: int) -> dict[str, Any]:
        factor = epochs / self.epochs
        commit = self.commit_epoch and _inside(self.commit_epoch * factor, epochs)
        drops = tuple(drop * factor for drop in self.drops)
        return {"epochs": epochs, "drops": drops, "commit_epoch": commit}

    def after(self, epoch: int) -> Recipe:
        """What is left of this recipe after `epoch`: for re-training from `w^(k)`."""
        passed = [drop for drop in self.drops if drop <= epoch]
        drops = tuple(drop - epoch for drop in self.drops if drop > epoch)
        lr = self.lr * self.drop_factor ** len(passed)
        changes = {"epochs": self.epochs - epoch, "drops": drops, "lr": lr, "commit_epoch": None}
        return Recipe.parse({**self.model_dump(), **changes}, within="recipe")

    # Pruning, and its two parts

    def for_pruning(self) -> Recipe:
        """The same epochs, with the paper's proportions of pruning: fix the mask after 80 %."""
        commit = _inside(0.8 * self.epochs, self.epochs)
        return self.changed(commit_epoch=commit, fine_tune_lr=self.lr / 100)

    def searching(self) -> Recipe:
        """The part before the mask is fixed."""
        return self.model_copy(update={"epochs": self._commit(), "commit_epoch": None})

    def fine_tuning(self) -> Recipe:
        """The part after: a constant, small learning rate."""
        changes = {"epochs": self.epochs - self._commit(), "lr": self.fine_tune_lr, "drops": ()}
        return self.model_copy(update={**changes, "commit_epoch": None})

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
        return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum)

    def make_scheduler(
        self, optimizer: torch.optim.Optimizer, steps_per_epoch: int
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """To be stepped after every training step."""
        milestones = [round(epoch * steps_per_epoch) for epoch in self.drops]
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, self.drop_factor)


def _inside(epoch: float, epochs: int) -> int | None:
    """The whole epoch that leaves at least one on each side, where there are two."""
    return max(1, min(epochs - 1, round(epoch))) if epochs > 1 else None


_TICKETS = Recipe(epochs=85, batch_size=128, drops=(56, 71))
_PRUNING = Recipe(epochs=200, batch_size=128, drops=(80, 120), commit_epoch=160)

RECIPES: dict[str, Recipe] = {
    "tickets": _TICKETS,
    "tickets-vgg": _TICKETS.changed(batch_size=64),
    "pruning": _PRUNING,
    "conv6": Recipe(epochs=40, batch_size=60, optimizer="adam", lr=3e-4, weight_decay=0),
    "imagenet": Recipe(epochs=90, batch_size=256, drops=(30, 60)),
    "digits": _TICKETS.scaled(12).changed(batch_size=25, commit_epoch=9, fine_tune_lr=0.01),
}
"""The paper's: ticket search (section 5.1, also with VGG's smaller batches), pruning (5.2), Conv-6
(appendix D) and ImageNet (5.3). And one for digits, of a few seconds."""
