"""Runs a graph with numpy alone: the truth in tests, and what runs where nothing was compiled."""

from __future__ import annotations

import math

import numpy as np

from prunus_runtime.graph import Graph
from prunus_runtime.operation import Array
from prunus_runtime.ops import kind_of

CHUNK, ELEMENTS = 8, 2**24
"""Images at a time, and elements of their largest value, so that these do not fill the memory."""


def run(graph: Graph, x: Array) -> Array:
    """The output of a valid `graph` for a batch `x` of shape (n, *input_shape)."""
    largest = max(map(math.prod, graph.shapes.values()))
    size = max(1, min(CHUNK, ELEMENTS // largest))
    chunks = [_run(graph, x[start : start + size]) for start in range(0, max(len(x), 1), size)]
    return np.concatenate(chunks)


def _run(graph: Graph, x: Array) -> Array:
    last_use = {name: i for i, op in enumerate(graph.operations) for name in op.inputs}
    values = {graph.input: x}
    for i, operation in enumerate(graph.operations):
        inputs = [values[name] for name in operation.inputs]
        values[operation.output] = kind_of(operation).run(operation, inputs)
        for name in set(operation.inputs):
            if last_use[name] == i and name != graph.output:
                del values[name]
    return values[graph.output]
