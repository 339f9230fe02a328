"""Which channels of a network matter for its output, and the network without the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prunus.deployment.constants import Flags, Known, reads
from prunus_runtime.graph import Graph, Operation

Keep = dict[str, Flags]

SOURCE = "_source"
"""Ends the name of the value that a constant is made of."""


def needed_channels(graph: Graph, known: Mapping[str, Known]) -> Keep:
    """For every value, the channels that have to stay.

    A channel stays if the output depends on it, or if an operation must treat it as another one that
    stays: operands of additions have the same channels, grouped convolutions whole groups.
    """
    needed = {name: np.zeros_like(value.channels) for name, value in known.items()}
    needed[graph.input][:] = True
    needed[graph.output][:] = True
    while True:
        _mark_backwards(graph, known, needed)
        groups = _Groups(known)
        for operation in graph.operations:
            if needed[operation.output].any() and not is_constant(graph, operation, known, needed):
                _join(groups, operation, known)
        if not groups.spread(needed):
            return needed


def is_constant(
    graph: Graph, operation: Operation, known: Mapping[str, Known], needed: Keep
) -> bool:
    """Whether an operation can go, because what is needed of its value is the same for all inputs.

    Operations that make constants of the graph's input, as they must of something, have to stay.
    """
    output = operation.output
    sources = (graph.input, f"{output}{SOURCE}")
    if operation.inputs[0] in sources and not operation.tensors.get("weight", np.ones(1)).any():
        return False
    return bool(known[output].channels[needed[output]].all())


def _mark_backwards(graph: Graph, known: Mapping[str, Known], needed: Keep) -> None:
    for operation in reversed(graph.operations):
        wanted = needed[operation.output]
        if not wanted.any() or is_constant(graph, operation, known, needed):
            continue
        if operation.kind in ("conv", "linear"):
            read = wanted @ reads(operation)
            needed[operation.inputs[0]] |= read | (not read.any())
        elif operation.kind == "softmax" or _strided(operation):
            needed[operation.inputs[0]][:] = True
        else:
            for name, sources in zip(operation.inputs, _sources(operation, known), strict=True):
                used = sources[wanted]
                needed[name][used[used >= 0]] = True


def _strided(operation: Operation) -> bool:
    return operation.kind == "slice" and operation.attributes["step"][0] != 1


def _sources(operation: Operation, known: Mapping[str, Known]) -> list[NDArray[Any]]:
    """For each input: the channel of it that each channel of the output is made of, or -1."""
    counts = [len(known[name].channels) for name in operation.inputs]
    same = np.arange(counts[0])
    if operation.kind == "concatenate":
        ends = np.cumsum(counts)
        sources = []
        for count, end in zip(counts, ends, strict=True):
            source = np.full(ends[-1], -1)
            source[end - count : end] = np.arange(count)
            sources.append(source)
        return sources
    if operation.kind == "flatten":
        return [np.repeat(same, known[operation.inputs[0]].content[0, 0].numel())]
    if operation.kind == "slice":
        a = operation.attributes
        return [same[a["start"][0] : a["stop"][0] : a["step"][0]]]
    if operation.kind == "pad":
        return [np.pad(same, tuple(operation.attributes["channels"]), constant_values=-1)]
    return [same] * len(operation.inputs)


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
        """Let every group stay of which one channel does; whether that changed anything."""
        flat = np.concatenate([needed[name] for name in self.start])
        roots = np.array([self.root(element) for element in range(len(flat))])
        stays = np.zeros_like(flat)
        stays[roots[flat]] = True
        after = stays[roots]
        for name, start in self.start.items():
            needed[name] = after[start : start + len(needed[name])]
        return bool((after != flat).any())


def _join(groups: _Groups, operation: Operation, known: Mapping[str, Known]) -> None:
    output = operation.output
    if operation.kind in ("conv", "linear"):
        count = operation.attributes.get("groups", 1)
        if count > 1:
            for name in (operation.inputs[0], output):
                size = len(known[name].channels) // count
                for channel in range(size * count):
                    groups.join(output, channel // size * _size(operation), name, channel)
        return
    for name, sources in zip(operation.inputs, _sources(operation, known), strict=True):
        for channel, source in enumerate(sources.tolist()):
            if source >= 0:
                groups.join(output, channel, name, source)


def _size(grouped: Operation) -> int:
    return len(grouped.tensors["weight"]) // int(grouped.attributes["groups"])


def without_channels(graph: Graph, keep: Keep) -> Graph:
    """The graph with only the channels to keep; values without any are gone."""
    operations: list[Operation] = []
    names: dict[str, str] = {}  # of values that became the same as others
    for operation in graph.operations:
        if not keep[operation.output].any():
            continue
        inputs = tuple(n for n in operation.inputs if keep[n].any())
        smaller = _smaller(replace(operation, inputs=inputs), keep)
        smaller = replace(smaller, inputs=tuple(names.get(n, n) for n in inputs))
        whole = smaller.inputs == (graph.input,) and operation.output == graph.output
        if _does_nothing(smaller) and not whole:
            names[operation.output] = smaller.inputs[0]
        else:
            operations.append(smaller)
    output = names.get(graph.output, graph.output)
    return replace(graph, operations=tuple(operations), output=output)


def _smaller(operation: Operation, keep: Keep) -> Operation:
    before, after = keep[operation.inputs[0]], keep[operation.output]
    tensors, attributes = dict(operation.tensors), dict(operation.attributes)
    for name, tensor in tensors.items():
        tensors[name] = tensor[after]
    if operation.kind == "linear" or attributes.get("groups") == 1:
        tensors["weight"] = tensors["weight"][:, before]
    elif operation.kind == "conv":
        attributes["groups"] = int(after[:: _size(operation)].sum())
    elif operation.kind == "pad":
        front, back = attributes["channels"]
        end = len(after) - back
        attributes["channels"] = [int(after[:front].sum()), int(after[end:].sum())]
    elif operation.kind == "slice" and not _strided(operation):
        bounds = {k: list(attributes[k]) for k in ("start", "stop")}
        for bound in bounds.values():
            bound[0] = int(before[: bound[0]].sum())
        attributes |= bounds
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    return replace(operation, tensors=tensors, attributes=attributes)


def _does_nothing(operation: Operation) -> bool:
    a = operation.attributes
    if operation.kind == "concatenate":
        return len(operation.inputs) == 1
    if operation.kind == "pad":
        return not any(a["channels"]) and not any(a["padding"])
    return False
