"""Losses of the built-in tasks: `loss(output, batch)` is a mean over the samples of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

Loss = Callable[..., Tensor]
"""`loss(output, batch)`. One that also takes `label_smoothing` can be smoothed by a recipe."""


def cross_entropy(output: Tensor, batch: Any, *, label_smoothing: float = 0.0) -> Tensor:
    """Of classes on axis 1 of the output; the second part of the batch holds their numbers."""
    return F.cross_entropy(output, batch[1], label_smoothing=label_smoothing)


def token_cross_entropy(output: Tensor, batch: Any, *, label_smoothing: float = 0.0) -> Tensor:
    """Of the next token at every position: classes on the last axis of the output."""
    targets = batch[1].flatten()
    return F.cross_entropy(output.flatten(0, -2), targets, label_smoothing=label_smoothing)


def mean_squared_error(output: Tensor, batch: Any) -> Tensor:
    """Of numbers; the second part of the batch holds the targets, in the shape of the output."""
    return F.mse_loss(output, batch[1])
