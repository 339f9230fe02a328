"""Runs a graph with numpy alone: the truth in tests, and what runs where nothing was compiled."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from prunus_runtime.graph import Graph
from prunus_runtime.operation import Array
from prunus_runtime.ops import kind_of

CHUNK, ELEMENTS = 8, 2**24
"""Images at a time, and elements of their largest value, so that these do not fill the memory."""


See = Callable[[str, Array], None]


def unseen(_name: str, _value: Array) -> None:
    """For `run`: nobody looks."""


def run(graph: Graph, x: Array, see: See = unseen) -> Array:
    """The output of a valid `graph` for a batch `x` of shape (n, *input_shape). `see` is called
    with the name of each value and what it is, for some images at a time."""
    largest = max(map(math.prod, graph.shapes.values()))
    size = max(1, min(CHUNK, ELEMENTS // largest))
    chunks = [_run(graph, x[start : start + size], see) for start in range(0, max(len(x), 1), size)]
    return np.concatenate(chunks)


def _run(graph: Graph, x: Array, see: See) -> Array:
    last_use = {name: i for i, op in enumerate(graph.operations) for name in op.inputs}
    values = {graph.input: x}
    see(graph.input, x)
    for i, operation in enumerate(graph.operations):
        inputs = [values[name] for name in operation.inputs]
        values[operation.output] = kind_of(operation).run(operation, inputs)
        see(operation.output, values[operation.output])
        for name in set(operation.inputs):
            if last_use[name] == i and name != graph.output:
                del values[name]
    return values[graph.output]
