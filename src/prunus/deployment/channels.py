"""Which channels of a network depend on its input, which of them matter for its output, and the
network without the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from prunus.deployment.operators import evaluate
from prunus_runtime.graph import Graph, Operation
from prunus_runtime.operation import Flags, Shape
from prunus_runtime.ops import Channels, kind_of

Keep = dict[str, Flags]

SOURCE = "_source"
"""The end of the name of a value that a constant is made of."""


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


def needed_channels(graph: Graph, known: Mapping[str, Known]) -> Keep:
    """For every value, the channels that have to stay.

    A channel stays if the output depends on it, or if an operation must treat it as another one
    that stays: operands of additions have the same channels, grouped convolutions whole groups.
    """
    needed = {name: np.zeros_like(value.channels) for name, value in known.items()}
    needed[graph.input][:] = True
    needed[graph.output][:] = True
    while True:
        _mark_backwards(graph, known, needed)
        groups = _Groups(known)
        for operation in graph.operations:
            if needed[operation.output].any() and not is_constant(graph, operation, known, needed):
                shapes = [known[name].shape for name in operation.inputs]
                for channel, name, other in kind_of(operation).tied(operation, shapes):
                    groups.join(operation.output, channel, name, other)
        if not groups.spread(needed):
            return needed


def is_constant(
    graph: Graph, operation: Operation, known: Mapping[str, Known], needed: Keep
) -> bool:
    """Whether an operation can go, because what is needed of its value is the same for all inputs.

    Every value is made of another one, so constants are made of the graph's input: the operations
    that do this stay. So do those that make sequences, which cannot be made in another way.
    """
    output = operation.output
    if len(known[output].shape) == 2:
        return False
    sources = (graph.input, f"{output}{SOURCE}")
    if operation.inputs[0] in sources and not operation.tensors.get("weight", np.ones(1)).any():
        return False
    return bool(known[output].channels[needed[output]].all())


def _mark_backwards(graph: Graph, known: Mapping[str, Known], needed: Keep) -> None:
    for operation in reversed(graph.operations):
        wanted = needed[operation.output]
        if not wanted.any() or is_constant(graph, operation, known, needed):
            continue
        shapes = [known[name].shape for name in operation.inputs]
        read = kind_of(operation).needs(operation, wanted, shapes)
        for name, channels in zip(operation.inputs, read, strict=True):
            needed[name] |= channels


class _Groups:
    """Channels that stay or go together, of all values: a union-find."""

    def __init__(self, known: Mapping[str, Known]) -> None:
        counts = [len(value.channels) for value in known.values()]
        self.start = dict(zip(known, np.cumsum([0, *counts[:-1]]).tolist(), strict=True))
        self.parent = list(range(sum(counts)))

    def root(self, element: int) -> int:
        while self.parent[element] != element:
            self.parent[element] = self.parent[self.parent[element]]
            element = self.parent[element]
        return element

    def join(self, value: str, channel: int, other: str, other_channel: int) -> None:
        first = self.root(self.start[value] + channel)
        self.parent[self.root(self.start[other] + other_channel)] = first

    def spread(self, needed: Keep) -> bool:
        """Keep all of a group if one of its channels is kept. Whether that changed anything."""
        flat = np.concatenate([needed[name] for name in self.start])
        roots = np.array([self.root(element) for element in range(len(flat))])
        stays = np.zeros_like(flat)
        stays[roots[flat]] = True
        after = stays[roots]
        for name, start in self.start.items():
            needed[name] = after[start : start + len(needed[name])]
        return bool((after != flat).any())


def without_channels(graph: Graph, keep: Keep) -> Graph:
    """The graph with only the channels to keep; values without any are gone."""
    operations: list[Operation] = []
    names: dict[str, str] = {}  # of values that became the same as others
    for operation in graph.operations:
        if not keep[operation.output].any():
            continue
        inputs = tuple(n for n in operation.inputs if keep[n].any())
        smaller = kind_of(operation).narrowed(operation, keep[inputs[0]], keep[operation.output])
        smaller = replace(smaller, inputs=tuple(names.get(n, n) for n in inputs))
        whole = smaller.inputs == (graph.input,) and operation.output == graph.output
        if kind_of(smaller).is_identity(smaller) and not whole:
            names[operation.output] = smaller.inputs[0]
        else:
            operations.append(smaller)
    output = names.get(graph.output, graph.output)
    return replace(graph, operations=tuple(operations), output=output)
