"""Metrics: what a task measures on held-out data, and which direction is better."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prunus.tasks.losses import check_labels


@dataclass(frozen=True)
class MetricInfo:
    """What tables and plots need to know about a metric; results files store it with the values."""

    name: str
    higher_is_better: bool = True
    unit: str = ""
    """Shown after the value. With `"%"`, values are fractions and are shown times 100."""

    def text(self, value: float) -> str:
        """The value for people: `98.20%`, `1.8812 nats`."""
        if self.unit == "%":
            return f"{100 * value:.2f}%"
        return f"{value:.4f} {self.unit}".rstrip()

    def gain(self, value: float, over: float) -> float:
        """How much better `value` is than `over`; negative if it is worse."""
        return value - over if self.higher_is_better else over - value

    def within(self, dense: float, margin: float = 0.02) -> float:
        """The value that is `margin` worse than `dense`: percentage points for `"%"`, otherwise a
        fraction of the value itself."""
        loss = margin if self.unit == "%" else margin * abs(dense)
        return dense - loss if self.higher_is_better else dense + loss


def _quotient(total: Tensor) -> float:
    weighted, count = total.tolist()
    return float(weighted / count)


@dataclass(frozen=True)
class Metric:
    """A metric and how to compute it.

    `measure(output, batch)` gives additive statistics of one batch as a tensor of a fixed shape.
    They are summed over batches and processes, and `finish` turns the sum into the value. By
    default the statistics are `[sum, count]` and the value is their quotient, a mean over samples.
    A batch may be empty: with several processes, one may get nothing of the last batch.
    """

    info: MetricInfo
    measure: Callable[[Any, Any], Tensor]
    finish: Callable[[Tensor], float] = _quotient


# Classification


def _correct(output: Tensor, batch: Any) -> Tensor:
    labels = batch[1]
    if labels.device.type == "cpu":  # elsewhere each look at the labels would be waited for
        check_labels(labels, output.shape[1])
    return torch.stack([(output.argmax(1) == labels).sum(), labels.new_tensor(labels.numel())])


ACCURACY = MetricInfo("accuracy", unit="%")
accuracy = Metric(ACCURACY, _correct)
"""The fraction of correctly classified samples. Classes are on axis 1 of the output; labels come
second in the batch."""

SAMPLES = "samples"
samples = Metric(MetricInfo(SAMPLES), lambda output, batch: _correct(output, batch)[1], float)
"""On how many samples `accuracy` was counted, which says how large its binomial error is."""


def mean_iou(classes: int) -> Metric:
    """Intersection over union, averaged over classes. Classes are on axis 1 of the output; the
    class of each pixel comes second in the batch. A class in neither of them does not count."""

    def confusion(output: Tensor, batch: Any) -> Tensor:
        pairs = batch[1].flatten() * classes + output.argmax(1).flatten()
        return torch.bincount(pairs, minlength=classes**2)

    def finish(total: Tensor) -> float:
        table = total.view(classes, classes).double()
        both = table.diagonal()
        union = table.sum(0) + table.sum(1) - both
        return float((both[union > 0] / union[union > 0]).mean())

    return Metric(MetricInfo("mean IoU", unit="%"), confusion, finish)


# Regression


def _squared_errors(output: Tensor, batch: Any) -> Tensor:
    target = _exact(batch[1])
    squares = (_exact(output) - target).square().sum()
    count = torch.full_like(squares, target.numel())
    return torch.stack([squares, count, target.sum(), target.square().sum()])


def rmse(scale: float = 1.0, unit: str = "") -> Metric:
    """Root of the mean squared error; targets come second in the batch, in units of `scale`."""

    def finish(total: Tensor) -> float:
        squares, count, *_ = total.tolist()
        return scale * math.sqrt(squares / count)

    return Metric(MetricInfo("RMSE", higher_is_better=False, unit=unit), _squared_errors, finish)


def _explained(total: Tensor) -> float:
    squares, count, targets, target_squares = total.tolist()
    spread = target_squares - targets**2 / count
    return float(1 - squares / spread) if spread > 0 else 0.0


r2 = Metric(MetricInfo("R2"), _squared_errors, _explained)
"""The fraction of the targets' variance that the output explains; 0 if they do not vary."""

# Language


def _token_losses(output: Tensor, batch: Any) -> Tensor:
    targets = batch[1].flatten()
    losses = F.cross_entropy(output.flatten(0, -2), targets, reduction="none")
    total = _exact(losses).sum()
    return torch.stack([total, torch.full_like(total, len(targets))])


token_loss = Metric(MetricInfo("loss", higher_is_better=False, unit="nats"), _token_losses)
"""The mean cross-entropy of the next token: classes on the last axis of the output."""
perplexity = Metric(
    MetricInfo("perplexity", higher_is_better=False),
    _token_losses,
    lambda total: math.exp(min(_quotient(total), 700.0)),  # beyond that it overflows
)
"""The network is as unsure of the next token as if it chose among so many equally likely ones."""


def _exact(tensor: Tensor) -> Tensor:
    """In double precision, if the device has it."""
    return tensor.float() if tensor.device.type == "mps" else tensor.double()
