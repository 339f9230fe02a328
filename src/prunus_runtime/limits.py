"""How much memory and work a file may ask for: a few bytes can describe a network that takes
gigabytes, or hours."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from prunus_runtime.checks import check_memory
from prunus_runtime.errors import GraphError
from prunus_runtime.graph import Graph
from prunus_runtime.operation import Shape
from prunus_runtime.ops import kind_of

PLANNED = 96
"""Bytes that the plans for all sizes of batches take for a kept value, while they are made."""


@dataclass(frozen=True)
class Limits:
    """What a network may cost. Whoever trusts a file that needs more can raise these.

    `memory` is bytes, of its tensors, its plan, and the activations of one image. `work` is
    multiply-adds for one image; operations that compute something else count as so many that take
    about as long.
    """

    memory: int = 2**30
    work: int = 5 * 10**10

    def of_file(self, size: int) -> Limits:
        """For a file of `size` bytes: one that holds much may also take much."""
        return replace(self, memory=self.memory + PLANNED * size)

    def check(self, graph: Graph, shapes: dict[str, Shape], kept: int) -> None:
        """`GraphError` if a graph with so many values that are not zero needs more. It looks at
        shapes only, so the graph's tensors need not take memory yet."""
        stored = sum(t.size for operation in graph.operations for t in operation.tensors.values())
        check_memory(4 * (stored + _most_alive(graph, shapes)) + PLANNED * kept, self.memory)
        work = sum(
            math.prod(shapes[operation.output])
            * kind_of(operation).work(operation, [shapes[name] for name in operation.inputs])
            for operation in graph.operations
        )
        if work > self.work:
            raise GraphError(
                f"it takes {work:.1e} multiply-adds for one image, and the limit is "
                f"{self.work:.1e}; if you trust it, raise that: limits=Limits(work=...), or "
                "--no-limits"
            )


def _most_alive(graph: Graph, shapes: dict[str, Shape]) -> int:
    """Elements of all values that must exist at the same time, and of the output, of which the
    caller gets a copy."""
    last = {name: time for time, o in enumerate(graph.operations) for name in o.inputs}
    last[graph.output] = len(graph.operations)
    alive = most = math.prod(graph.input_shape)
    for time, operation in enumerate(graph.operations):
        alive += math.prod(shapes[operation.output])
        most = max(most, alive)
        touched = {*operation.inputs, operation.output}
        alive -= sum(math.prod(shapes[name]) for name in touched if last.get(name, time) == time)
    return most + math.prod(shapes[graph.output])
