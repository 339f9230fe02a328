"""Plans how the native core runs a graph: where values lie, and a program of instructions on them.

A chunk is as many images as the arena holds at a time, its `lanes`. With one, or a few, vectors run
along the positions of a plane; with as many as a vector has elements, each is one position of all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from prunus_runtime import native
from prunus_runtime.checks import check_memory
from prunus_runtime.graph import Graph
from prunus_runtime.native.interface import Kernel, Place
from prunus_runtime.operation import Operation
from prunus_runtime.ops import kind_of
from prunus_runtime.plan.builder import Builder, Step, check_arena
from prunus_runtime.plan.layout import ArenaLayout


def make_program(
    graph: Graph, isa: str, lanes: int, threads: int, memory: float = math.inf
) -> native.Program:
    """The program for chunks of `lanes` images: 1, 2, 4, ... up to the size of a vector. `memory`
    limits the bytes of its constants, and those of its arena."""
    steps = _fuse(graph)
    packed = _packed(graph, steps, isa)
    places, arena = _lay_out(graph, steps, isa, lanes, memory, packed)
    builder = Builder(isa, lanes, threads, places, arena, memory, packed)
    tokens, outputs = graph.tokens is not None, len(graph.output_shape) == 2
    builder.emit(Kernel.LOAD_INPUT, out=builder.places[graph.input], option=tokens)
    for step in steps:
        kind_of(step.operation).emit(builder, step)
    builder.emit(Kernel.STORE_OUTPUT, a=builder.places[graph.output], option=tokens and outputs)
    return builder.program()


def arena_size(graph: Graph, isa: str, lanes: int, memory: float = math.inf) -> int:
    """Floats of the activations of a chunk of `lanes` images."""
    steps = _fuse(graph)
    return _lay_out(graph, steps, isa, lanes, memory, _packed(graph, steps, isa))[1]


def _fuse(graph: Graph) -> list[Step]:
    """The graph as steps, in an order in which they can be done: a layer also does the sum and the
    activation behind it, where it can. What the output does not depend on is left out."""
    readers = Counter(name for operation in graph.operations for name in operation.inputs)
    readers[graph.output] += 1
    steps: dict[str, Step] = {}
    order: dict[str, int] = {}
    for number, operation in enumerate(graph.operations):
        # The latest layer that can do it as well, so that all other inputs exist by then.
        made = set(operation.inputs) & steps.keys()
        for name in sorted(made, key=order.__getitem__, reverse=True):
            step = steps[name]
            if step.operation.is_layer and readers[name] == 1:
                joined = kind_of(operation).joined(operation, step, graph.shapes)
                if joined is not None:
                    del steps[name]
                    break
        else:
            has_weights = not operation.is_layer or operation.tensors["weight"].any()
            inputs = operation.inputs if has_weights else ()
            joined = Step(operation, inputs, operation.output)
        steps[operation.output], order[operation.output] = joined, number
    wanted, used = {graph.output}, []
    for step in reversed(steps.values()):
        if step.output in wanted:
            wanted.update(step.reads)
            used.append(step)
    return used[::-1]


def _packed(graph: Graph, steps: list[Step], isa: str) -> dict[str, Operation]:
    """The values that are packed for the layers that read them, where the processor gains by that,
    and how these were quantized."""
    made = [step.operation for step in steps if step.operation.kind == "quantize"]
    found = {o.output: o for o in made if o.output != graph.output} if native.packs(isa) else {}
    for step in steps:
        for name in found.keys() & set(step.reads):
            kind, shape = kind_of(step.operation), graph.shapes[step.output]
            if step.residual == name or not kind.takes_packed(step.operation, found[name], shape):
                del found[name]
    return found


def _lay_out(
    graph: Graph,
    steps: list[Step],
    isa: str,
    lanes: int,
    memory: float,
    packed: Mapping[str, Operation],
) -> tuple[dict[str, Place], int]:
    """Every value's place, and the size of the arena."""
    layout = ArenaLayout(lanes, native.lanes(isa), packed=packed)
    layout.add(graph.input, graph.input_shape)
    lifetimes = {graph.input: (0, 0)}
    for time, step in enumerate(steps, 1):
        layout.add(step.output, graph.shapes[step.output])
        lifetimes[step.output] = (time, time)
        for name in step.reads:
            lifetimes[name] = (lifetimes[name][0], time)
        besides = kind_of(step.operation).reserve(layout, step)
        if besides is not None:
            lifetimes[besides] = (time, time)
    gapless = {step.output for step in steps if kind_of(step.operation).output_without_gaps}
    lifetimes[graph.output] = (lifetimes[graph.output][0], len(steps) + 1)
    for time, step in enumerate(steps, 1):
        # A sum takes the place of the value that is added, if nothing reads that any more: not even
        # this convolution, whose other filters would see the sum.
        last = step.residual and lifetimes[step.residual][1] == time
        if step.residual and last and step.residual not in {*step.inputs, *gapless}:
            layout.share(step.output, step.residual)
    places, arena = layout.place(lifetimes)
    check_arena(arena, lanes, layout.vector)
    check_memory(4 * arena, memory)
    return places, arena
