"""Which channels of a network do not depend on its input, and what they hold instead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from prunus.deployment.operators import evaluate
from prunus_runtime.graph import Graph
from prunus_runtime.operation import Flags, Shape
from prunus_runtime.ops import Channels, kind_of


@dataclass(frozen=True)
class Known:
    """What is known of a value without the input: `channels` says where `content` is true.

    `content` is float64 and has a batch of one. Other channels hold what the known ones contribute:
    the value if all that is unknown were zero.
    """

    channels: Flags
    content: Tensor

    @property
    def shape(self) -> Shape:
        """Without the batch."""
        return tuple(self.content.shape[1:])

    @property
    def zero(self) -> Flags:
        """The channels that are known to be zero everywhere."""
        planes = self.content[0].reshape(len(self.channels), -1)
        flags: Flags = self.channels & (planes == 0).all(1).numpy()
        return flags


def known_values(graph: Graph) -> dict[str, Known]:
    """What is known of every value, by name."""
    values = {
        graph.input: Known(
            np.zeros(graph.input_shape[0], dtype=bool),
            torch.zeros(1, *graph.input_shape, dtype=torch.float64),
        )
    }
    with torch.no_grad():
        for operation in graph.operations:
            inputs = [_only_known(values[name]) for name in operation.inputs]
            content = evaluate(operation, *(i.content for i in inputs))
            channels = [Channels(i.shape, i.channels, i.zero) for i in inputs]
            known = kind_of(operation).known(operation, channels)
            values[operation.output] = Known(known, content)
    return values


def _only_known(value: Known) -> Known:
    content = value.content.clone()
    content[:, torch.from_numpy(~value.channels)] = 0.0
    return Known(value.channels, content)


def uniform(content: Tensor) -> Flags:
    """Whether each channel holds one number everywhere, up to rounding in float64."""
    if content.ndim == 2:
        return np.ones(content.shape[1], dtype=bool)
    planes = content[0].flatten(1)
    spread = planes.amax(1) - planes.amin(1)
    result: Flags = (spread <= 1e-12 * planes.abs().amax(1).clamp(min=1e-30)).numpy()
    return result
