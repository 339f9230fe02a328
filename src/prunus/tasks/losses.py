"""Losses of the built-in tasks: `loss(output, batch)` is a mean over the samples of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from prunus.errors import SettingError

Loss = Callable[..., Tensor]
"""`loss(output, batch)`. If it also takes `label_smoothing`, a recipe can set that."""

IGNORED = -100
"""The label of what does not count, as in PyTorch."""


def cross_entropy(output: Tensor, batch: Any, *, label_smoothing: float = 0.0) -> Tensor:
    """Of classes: logits on axis 1 of the output; class numbers come second in the batch."""
    return _cross_entropy(output, batch[1], label_smoothing)


def token_cross_entropy(output: Tensor, batch: Any, *, label_smoothing: float = 0.0) -> Tensor:
    """Of the next token at every position: logits on the last axis of the output."""
    targets = batch[1].flatten()
    return _cross_entropy(output.flatten(0, -2), targets, label_smoothing)


def _cross_entropy(output: Tensor, labels: Tensor, label_smoothing: float) -> Tensor:
    try:
        return F.cross_entropy(output, labels, label_smoothing=label_smoothing)
    except IndexError:  # on a CPU; elsewhere the device itself stops
        check_labels(labels, output.shape[1])
        raise


def check_labels(labels: Tensor, classes: int) -> None:
    """Raise if there are labels that no class of the network's output has."""
    known = labels[labels != IGNORED]
    if known.numel() and not 0 <= int(known.min()) <= int(known.max()) < classes:
        raise SettingError(
            f"the labels are from {int(known.min())} to {int(known.max())}, and the network has "
            f"outputs for the classes 0 to {classes - 1}: number the classes from 0, or give the "
            "network more outputs"
        )


def mean_squared_error(output: Tensor, batch: Any) -> Tensor:
    """Of numbers: targets come second in the batch, in the shape of the output."""
    return F.mse_loss(output, batch[1])
