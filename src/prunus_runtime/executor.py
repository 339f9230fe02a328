"""Runs a graph with the native core."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from math import inf
from time import perf_counter

import numpy as np

from prunus_runtime.errors import GraphError
from prunus_runtime.graph import Graph
from prunus_runtime.native import ANY, Program, instruction_set, lanes
from prunus_runtime.operation import Array
from prunus_runtime.planner import arena_size, make_program

MOST = 3 * 2**20
"""The most floats that the activations of a chunk of several images may take: more was slower."""
TRIES = 20
"""Calls with helpers, and calls without, before one of both is chosen. It takes some until the
system has given helpers a processor of their own."""


class Executor:
    """A graph ready to run, with a program for each size of chunk. `Deployed` checks its inputs.

    `threads` share the work (as many as this process may use, if None); `isa` forces an instruction
    set. Its plan, and the activations of one image, may take `memory` bytes: a `GraphError` at once
    if these take more. Calls from several threads at once are safe.
    """

    def __init__(
        self,
        graph: Graph,
        threads: int | None = None,
        isa: str | None = None,
        memory: float = inf,
    ) -> None:
        self.graph, self.memory = graph, memory
        self.threads = threads or _processors()
        self.isa = instruction_set(isa)
        self._vector = lanes(self.isa)
        self._arenas: dict[int, float] = {}
        if memory < inf:
            self._arenas[1] = arena_size(graph, self.isa, 1, memory)
        self._programs: dict[int, Program] = {}
        self._helpers: dict[int, Helpers] = {}
        self._planning = threading.Lock()

    def __call__(self, x: Array) -> Array:
        """The output for a contiguous float32 array of shape (n, *input_shape), or of shorter
        sequences, if they can be."""
        shape, length = self.graph.output_shape, ANY
        if self.graph.tokens is not None and self.graph.tokens.shorter:
            length = x.shape[1]
            shape = (length, *shape[1:]) if len(shape) == 2 else shape
        y = np.empty((len(x), *shape), np.float32)
        done = 0
        while done < len(x):
            lanes, images = self.cut(len(x) - done)
            part = slice(done, done + images)
            run = partial(self.program(lanes).run, x[part], y[part], length=length)
            if images > lanes:  # every thread has a chunk of its own
                run(self.threads)
            else:
                self._helpers[lanes].run(run, x[part].size)
            done += images
        return y

    def cut(self, images: int) -> tuple[int, int]:
        """The size of chunks, and how many images to compute in chunks of that size. Chunks are as
        large as possible while every thread has one."""
        lanes = min(self._vector, _power_of_two(-(-images // self.threads)))
        while lanes > 1 and (-(-images // lanes) < self.threads or self._arena(lanes) > MOST):
            lanes //= 2
        whole = lanes * self.threads
        return lanes, images // whole * whole or images

    def program(self, lanes: int) -> Program:
        """The program for chunks of `lanes` images, made when it is first needed."""
        if lanes not in self._programs:
            with self._planning:
                if lanes not in self._programs:
                    self._helpers[lanes] = Helpers(self.threads)
                    self._programs[lanes] = make_program(
                        self.graph, self.isa, lanes, self.threads, self.memory
                    )
        return self._programs[lanes]

    def _arena(self, lanes: int) -> float:
        if lanes not in self._arenas:
            try:
                self._arenas[lanes] = arena_size(self.graph, self.isa, lanes)
            except GraphError:  # beyond all limits
                self._arenas[lanes] = inf
        return self._arenas[lanes]


class Helpers:
    """Whether a single chunk is faster with threads that help.

    What one thread has written the next one reads, and how long that takes differs more from
    machine to machine than a plan could know. So the first calls try both ways, one after the
    other, because threads that have just helped are still awake. Both compute the same, to the last
    bit.
    """

    def __init__(self, threads: int) -> None:
        self.chosen: int | None = None
        self._seconds: dict[int, list[float]] = {threads: [], 1: []}

    def run(self, call: Callable[[int], None], size: int) -> None:
        """Calls with a number of threads; `size` is how much there is to do."""
        if self.chosen is not None:
            call(self.chosen)
            return
        tried = self._seconds
        threads = next((number for number in tried if len(tried[number]) < TRIES), 1)
        start = perf_counter()
        call(threads)
        tried[threads].append((perf_counter() - start) / size)
        if all(len(seconds) >= TRIES for seconds in tried.values()):
            self.chosen = min(tried, key=lambda number: min(tried[number]))


def _power_of_two(number: int) -> int:
    """The least that is not less."""
    return 1 << (number - 1).bit_length()


def _processors() -> int:
    """How many this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
