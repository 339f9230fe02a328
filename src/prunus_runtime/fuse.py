"""What the native core does in one go: a convolution, and the sum and activation behind it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from prunus_runtime.graph import Graph, Operation, Shape


@dataclass(frozen=True)
class Step:
    """One operation of the graph, and what was fused into it. A layer without weights has no
    inputs: what it puts out does not depend on them."""

    operation: Operation
    inputs: tuple[str, ...]
    output: str
    residual: str | None = None
    """A value that is added to the result of a convolution or linear layer,"""
    low: float = -math.inf
    high: float = math.inf
    """and the bounds that the sum is then clamped to."""

    @property
    def reads(self) -> tuple[str, ...]:
        return self.inputs if self.residual is None else (*self.inputs, self.residual)


def fuse(graph: Graph, shapes: dict[str, Shape]) -> list[Step]:
    """The graph as steps, in an order in which they can be done."""
    readers = Counter(name for operation in graph.operations for name in operation.inputs)
    readers[graph.output] += 1
    steps: dict[str, Step] = {}
    for operation in graph.operations:
        weight = operation.tensors.get("weight")
        inputs = operation.inputs if weight is None or weight.any() else ()
        step = Step(operation, inputs, operation.output)
        inner = _absorbed(operation, steps, readers, shapes)
        if inner is not None:
            step = _join(steps.pop(inner), operation)
        steps[operation.output] = step
    return _used(list(steps.values()), graph.output)


def _used(steps: list[Step], output: str) -> list[Step]:
    """Those that the output depends on."""
    wanted, used = {output}, []
    for step in reversed(steps):
        if step.output in wanted:
            wanted.update(step.reads)
            used.append(step)
    return used[::-1]


def clamp_of(operation: Operation) -> tuple[float, float] | None:
    """The bounds of an activation that is nothing but a clamp."""
    kind = operation.attributes["kind"]
    if kind == "relu":
        return 0.0, math.inf
    if kind == "clamp":
        return float(operation.attributes["low"]), float(operation.attributes["high"])
    return None


def _absorbed(
    operation: Operation, steps: dict[str, Step], readers: Counter[str], shapes: dict[str, Shape]
) -> str | None:
    """The input whose step can do `operation` as well: the latest, so that the others exist."""
    if operation.kind == "activation":
        if clamp_of(operation) is None:
            return None
    elif operation.kind != "add" or len({shapes[name] for name in operation.inputs}) > 1:
        return None
    for name in reversed(steps):
        step = steps[name]
        if name not in operation.inputs or step.operation.kind not in ("conv", "linear"):
            continue
        unbounded = step.low == -math.inf and step.high == math.inf
        free = unbounded and (operation.kind == "activation" or step.residual is None)
        if free and readers[name] == 1:
            return name
    return None


def _join(step: Step, operation: Operation) -> Step:
    if operation.kind == "activation":
        low, high = clamp_of(operation) or (-math.inf, math.inf)
        return replace(step, output=operation.output, low=low, high=high)
    other = next(name for name in operation.inputs if name != step.output)
    return replace(step, output=operation.output, residual=other)
