"""The training loop."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from prunus.methods import Method
from prunus.tasks.data import Loader
from prunus.training.recipe import Recipe


def train(
    model: nn.Module,
    loader: Loader,
    recipe: Recipe,
    *,
    method: Method | None = None,
    on_epoch: Callable[[int], None] | None = None,
) -> None:
    """Train for one round; `on_epoch` is told of each epoch that ended, from 1 on."""
    if method is None:
        groups = [{"params": list(model.parameters()), "weight_decay": recipe.weight_decay}]
    else:
        groups = method.param_groups(recipe.lr, weight_decay=recipe.weight_decay)
    optimizer = recipe.optimizer(groups)
    scheduler = recipe.scheduler(optimizer, len(loader))
    model.train()
    for epoch in range(recipe.epochs):
        for images, labels in loader.epoch(epoch):
            loss = F.cross_entropy(model(images), labels)
            if method is not None:
                loss = loss + method.penalty()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            if method is not None:
                method.step()
        if on_epoch is not None:
            on_epoch(epoch + 1)


@torch.no_grad()
def accuracy(model: nn.Module, loader: Loader) -> float:
    """Fraction of images that the model, in evaluation mode, classifies correctly."""
    training = model.training
    model.eval()
    correct = total = 0
    for images, labels in loader.epoch(0):
        correct += int((model(images).argmax(1) == labels).sum())
        total += len(labels)
    model.train(training)
    return correct / total
