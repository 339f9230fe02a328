"""A small network and a few images to train it on."""

import pytest
import torch
from torch import nn

from prunus.tasks.data import Batches
from prunus.training import Engine, Trainer


def network() -> nn.Module:
    """Without BatchNorm, so that parts of a batch do not see each other."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 3), nn.Flatten(), nn.Linear(32, 3)
    )


def batches(engine: Engine, size: int = 8) -> Batches:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (40, 1, 6, 6), dtype=torch.uint8, generator=generator)
    labels = torch.randint(3, (40,), generator=generator)
    options = engine.loader_options(size)
    return Batches(images, labels, options, mean=[0.5], std=[0.3], seed=5)


def spoil_loss(trainer: Trainer, monkeypatch: pytest.MonkeyPatch, *, at_step: int) -> None:
    """Make the loss of one step, and with it every gradient, NaN."""
    penalty = trainer.method.penalty

    def spoiled() -> torch.Tensor:
        value = sum(p.sum() for p in trainer.model.parameters()) * torch.nan
        return value if trainer.step + 1 == at_step else penalty()

    monkeypatch.setattr(trainer.method, "penalty", spoiled)
