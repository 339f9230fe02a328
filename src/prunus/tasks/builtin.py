"""Tasks that are not image classification, as a user would write them: one function each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from prunus.tasks.data.digits import scikit_learn_datasets
from prunus.tasks.data.shapes import SHAPE_CLASSES, draw_shapes
from prunus.tasks.data.splits import DataOptions
from prunus.tasks.data.tensors import tensor_data
from prunus.tasks.data.text import read_text, text_data
from prunus.tasks.losses import mean_squared_error, token_cross_entropy
from prunus.tasks.metrics import accuracy, mean_iou, perplexity, r2, rmse, token_loss
from prunus.tasks.networks.gpt import GPT
from prunus.tasks.networks.unet import UNet
from prunus.tasks.recipes import RECIPES, Recipe
from prunus.tasks.task import Task

_PROGRESSION_MEAN, _PROGRESSION_DEVIATION = 152.0, 77.0
"""Roughly those of the targets in the diabetes data."""


def diabetes(root: Path, options: DataOptions) -> Task:  # noqa: ARG001 (comes with scikit-learn)
    """Regression: the progression of a disease, from ten measurements of each of 442 patients."""
    features, target = scikit_learn_datasets().load_diabetes(return_X_y=True)
    x = torch.from_numpy(features).float() * len(features) ** 0.5  # each with deviation 1
    y = (torch.from_numpy(target).float() - _PROGRESSION_MEAN) / _PROGRESSION_DEVIATION
    data = tensor_data((x, y[:, None]), options, validation_samples=60, test_samples=142)

    def build() -> nn.Module:
        hidden = [nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
        return nn.Sequential(*hidden, nn.Linear(64, 1))

    return Task(
        "diabetes/mlp",
        data,
        build,
        Recipe(epochs=10, batch_size=20, lr=0.01, schedule="cosine", weight_decay=1e-2),
        loss=mean_squared_error,
        metrics=(rmse(_PROGRESSION_DEVIATION, unit="points"), r2),
        select="linear",
    )


def shapes(root: Path, options: DataOptions) -> Task:  # noqa: ARG001 (drawn)
    """Segmentation: which pixels belong to a square, a disc or a cross."""
    size = options.image_size or 24
    data = tensor_data(draw_shapes(1400, size), options, validation_samples=200, test_samples=400)
    return Task(
        "shapes/unet",
        data,
        lambda: UNet(num_classes=SHAPE_CLASSES, channels=1),
        RECIPES["modern"].changed(epochs=8, batch_size=32, lr=0.1),
        metrics=(mean_iou(SHAPE_CLASSES), accuracy),
        select="paper",
    )


def gpt_char(root: Path, options: DataOptions) -> Task:
    """Language: the next character in any text (`--data FILE_OR_FOLDER`)."""
    data = text_data(read_text(root), options, context=64)
    recipe = Recipe(
        epochs=4,
        batch_size=32,
        optimizer="adamw",
        lr=3e-3,
        weight_decay=0.1,
        schedule="cosine",
        warmup=0.2,
    )
    return Task(
        "text/gpt-char",
        data,
        lambda: GPT(vocabulary=len(data.alphabet), context=data.context),
        recipe,
        loss=token_cross_entropy,
        metrics=(token_loss, perplexity),
        select="linear",
    )


TASKS: dict[str, Callable[[Path, DataOptions], Task]] = {
    "diabetes/mlp": diabetes,
    "shapes/unet": shapes,
    "text/gpt-char": gpt_char,
}
"""Tasks by name. Any set of labelled images with any network is a task too: see `load_task`."""
