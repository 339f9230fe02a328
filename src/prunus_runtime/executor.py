"""Runs a graph with the native core."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np

from prunus_runtime.errors import InputError
from prunus_runtime.graph import Array, Graph
from prunus_runtime.native import Table, instruction_set, lanes
from prunus_runtime.plan import make_plan
from prunus_runtime.shapes import shapes

MOST_ACROSS = 2**24
"""Floats of activations of a thread, up to which a vector may run across images."""


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
        self._tables: dict[bool, Table] = {}
        self._lock = threading.Lock()

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
        across = self._images_across(len(x))
        if across:
            self._table(True).run(x[:across], y[:across], self.threads)
        if across < len(x):
            self._table(False).run(x[across:], y[across:], self.threads)
        return y

    def _images_across(self, images: int) -> int:
        """How many to compute with vectors across images: none if those do not fit the caches."""
        wide = lanes(self.isa)
        rest = images % wide
        across = images if rest > wide // 2 else images - rest
        return across if across and self._table(True).arena <= MOST_ACROSS else 0

    def _table(self, across: bool) -> Table:
        with self._lock:
            if across not in self._tables:
                options = (self.isa, across, self.threads)
                self._tables[across] = make_plan(self.graph, self._shapes, *options)
            return self._tables[across]


def _processors() -> int:
    """How many this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
