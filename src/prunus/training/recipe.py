"""How a network is optimised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch


@dataclass(frozen=True)
class Recipe:
    """SGD with momentum and a learning rate that drops by `drop_factor` at some epochs.

    The defaults for rates are the paper's for CIFAR-10. `drops` counts in epochs and may lie inside
    one, so that a short budget keeps the paper's proportions: `Recipe.scaled(epochs)`.
    """

    epochs: int
    batch_size: int
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    drops: tuple[float, ...] = ()
    drop_factor: float = 0.1

    @classmethod
    def scaled(cls, epochs: int, batch_size: int) -> Recipe:
        """The paper's ticket-search recipe (drops at epochs 56 and 71 of 85) in fewer epochs."""
        return cls(epochs, batch_size, drops=(epochs * 56 / 85, epochs * 71 / 85))

    def after(self, epoch: int) -> Recipe:
        """What is left of this recipe after `epoch`: for re-training from `w^(k)`."""
        drops = tuple(drop - epoch for drop in self.drops)
        return replace(self, epochs=self.epochs - epoch, drops=drops)

    def optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum)

    def scheduler(
        self, optimizer: torch.optim.Optimizer, steps_per_epoch: int
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """To be stepped after every training step."""
        milestones = [round(epoch * steps_per_epoch) for epoch in self.drops]
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, self.drop_factor)
