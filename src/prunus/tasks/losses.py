"""Losses of the built-in tasks: `loss(output, batch)` is a mean over the samples of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

Loss = Callable[..., Tensor]
"""`loss(output, batch)`. If it also takes `label_smoothing`, a recipe can set that."""


def cross_entropy(output: Tensor, batch: Any, *, label_smoothing: float = 0.0) -> Tensor:
    """Of classes: logits on axis 1 of the output; class numbers come second in the batch."""
    return F.cross_entropy(output, batch[1], label_smoothing=label_smoothing)


def token_cross_entropy(output: Tensor, batch: Any, *, label_smoothing: float = 0.0) -> Tensor:
    """Of the next token at every position: logits on the last axis of the output."""
    targets = batch[1].flatten()
    return F.cross_entropy(output.flatten(0, -2), targets, label_smoothing=label_smoothing)


def mean_squared_error(output: Tensor, batch: Any) -> Tensor:
    """Of numbers: targets come second in the batch, in the shape of the output."""
    return F.mse_loss(output, batch[1])
