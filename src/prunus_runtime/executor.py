"""Runs a graph with the native core."""

from __future__ import annotations

import os
import sys
import threading
from math import inf

import numpy as np

from prunus_runtime.errors import GraphError, InputError
from prunus_runtime.graph import Array, Graph
from prunus_runtime.native import Table, instruction_set, lanes
from prunus_runtime.plan import arena_size, make_plan
from prunus_runtime.shapes import shapes

MOST = 3 * 2**20
"""Floats of the activations of a chunk of several images, at most: more were slower."""


class Network:
    """A graph ready to run: `network(x)` for a float32 array of shape (n, *input_shape).

    `threads` share the work (as many as this process may use, if None); `isa` forces an instruction
    set. Calls from several threads at once are safe.
    """

    def __init__(self, graph: Graph, threads: int | None = None, *, isa: str | None = None) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"threads is {threads}; it must be at least 1")
        self.graph = graph
        self.threads = threads or _processors()
        self.isa = instruction_set(isa)
        self._shapes = shapes(graph)
        self._vector = lanes(self.isa)
        self._arenas: dict[int, float] = {}
        self._tables: dict[int, Table] = {}
        self._planning = threading.Lock()

    def __call__(self, x: Array) -> Array:
        """The network's output for each image of `x`."""
        expected = self.graph.input_shape
        if x.ndim != len(expected) + 1 or x.shape[1:] != expected:
            raise InputError(
                f"the input has shape {x.shape}; this network takes (images, "
                f"{', '.join(map(str, expected))})"
            )
        x = np.ascontiguousarray(x, np.float32)
        y = np.empty((len(x), *self._shapes[self.graph.output]), np.float32)
        done = 0
        while done < len(x):
            lanes, images = self._cut(len(x) - done)
            part = slice(done, done + images)
            self._table(lanes).run(x[part], y[part], self.threads)
            done += images
        return y

    def _cut(self, images: int) -> tuple[int, int]:
        """How many images a chunk has, and how many to compute in such chunks: large ones, but one
        for each thread."""
        lanes = min(self._vector, _power_of_two(-(-images // self.threads)))
        while lanes > 1 and (-(-images // lanes) < self.threads or self._arena(lanes) > MOST):
            lanes //= 2
        whole = lanes * self.threads
        return lanes, images // whole * whole or images

    def _arena(self, lanes: int) -> float:
        if lanes not in self._arenas:
            try:
                size: float = arena_size(self.graph, self._shapes, self.isa, lanes, self.threads)
            except GraphError:  # beyond all limits
                size = inf
            self._arenas[lanes] = size
        return self._arenas[lanes]

    def _table(self, lanes: int) -> Table:
        if lanes not in self._tables:
            with self._planning:
                if lanes not in self._tables:
                    options = (self.isa, lanes, self.threads)
                    self._tables[lanes] = make_plan(self.graph, self._shapes, *options)
        return self._tables[lanes]


def _power_of_two(number: int) -> int:
    """The least that is not less."""
    return 1 << (number - 1).bit_length()


def _processors() -> int:
    """How many this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
