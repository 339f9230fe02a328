"""Layers that multiply integers of eight bits: which ones, and the range of what they read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from prunus.errors import DeployError
from prunus_runtime import reference
from prunus_runtime.graph import Array, Graph, Operation
from prunus_runtime.ops import kind_of
from prunus_runtime.ops.quantize import LEVELS
from prunus_runtime.plan.packed import in_fours, over_filters
from prunus_runtime.storage import as_int8

WORTH = 1.15
"""Kept weights of four neighbouring channels, on average where any is kept, from which on a layer
is faster in int8: what `benchmarks/int8.py` measured. Four are multiplied at once."""


def in_int8(graph: Graph, inputs: Array) -> Graph:
    """The graph with those layers in int8 that gain by it: their weights are rounded, and what they
    read is quantized to the range that it has for some `inputs` of the network.

    A layer gains if it keeps enough weights side by side, and has more than one position. If none
    does, the graph is the same.
    """
    if not len(inputs):
        raise DeployError("int8 needs some inputs of the network, to find ranges; there are none")
    layers = {o.output: _rounded(o) for o in graph.operations if o.is_layer and _gains(o)}
    quantized = {
        name: _quantize(name, low, high, set(graph.shapes))
        for name, (low, high) in _ranges(
            graph, inputs, {layer.inputs[0] for layer in layers.values()}
        ).items()
    }
    operations: list[Operation] = []
    done: set[str] = set()
    for operation in graph.operations:
        layer = layers.get(operation.output)
        if layer is not None:
            made = quantized[layer.inputs[0]]
            if kind_of(layer).takes_packed(layer, made, graph.shapes[layer.output]):
                if made.output not in done:
                    operations.append(made)
                    done.add(made.output)
                operation = replace(layer, inputs=(made.output,))
        operations.append(operation)
    return replace(graph, operations=tuple(operations)).check()


def int8_layers(graph: Graph) -> list[str]:
    """The layers that compute in int8."""
    made = {o.output for o in graph.operations if o.kind == "quantize"}
    return [o.layer for o in graph.operations if o.is_layer and o.inputs[0] in made]


def _gains(layer: Operation) -> bool:
    codes, _ = as_int8(layer.tensors["weight"])
    return int(np.count_nonzero(codes)) > WORTH * int(in_fours(codes).any(axis=2).sum())


def _rounded(layer: Operation) -> Operation:
    codes, scales = as_int8(layer.tensors["weight"])
    weight = codes * over_filters(scales, layer.tensors["weight"])
    return replace(layer, tensors={**layer.tensors, "weight": weight})


def _quantize(name: str, low: float, high: float, taken: set[str]) -> Operation:
    step = max(high - low, 1e-20) / (LEVELS - 1)
    zero = min(LEVELS - 1, round(-low / step))
    output = next(
        n for i in range(len(taken) + 1) if (n := f"{name[:900]}.int8{i or ''}") not in taken
    )
    return Operation("quantize", (name,), output, {"step": step, "zero": zero})


def _ranges(graph: Graph, inputs: Array, names: Collection[str]) -> dict[str, tuple[float, float]]:
    """The least and the greatest element of some values; zero is always among them."""
    found = dict.fromkeys(names, (0.0, 0.0))

    def see(name: str, value: Array) -> None:
        if name in found:
            low, high = found[name]
            found[name] = min(low, float(value.min())), max(high, float(value.max()))

    reference.run(graph, inputs, see)
    return found
