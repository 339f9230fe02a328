"""Shapes of all values of a graph, and whether the graph is one that can be run at all.

What passes `shapes` is safe to run: each attribute and tensor is there, of the right kind and size,
and each window, slice and plane lies where it can be read.
"""

from __future__ import annotations

import numpy as np

from prunus_runtime.checks import shown, size, text
from prunus_runtime.errors import GraphError
from prunus_runtime.graph import Graph, Operation, Shape
from prunus_runtime.rules import output_shape


def shapes(graph: Graph) -> dict[str, Shape]:
    """The shape of each value by name, without the batch.

    Raises `GraphError`, naming the operation and what is wrong with it, unless the whole graph is
    valid and all its numbers are finite.
    """
    found = infer(graph)
    for position, operation in enumerate(graph.operations):
        for name, tensor in operation.tensors.items():
            if not (np.isfinite(tensor.min()) and np.isfinite(tensor.max())):
                raise GraphError(
                    f"{described(operation, position)}: `{name}` has values that are not finite"
                )
    return found


def infer(graph: Graph) -> dict[str, Shape]:
    """The same without a look at the values of tensors."""
    given = graph.input_shape
    if not isinstance(given, tuple) or not all(type(length) is int for length in given):
        raise GraphError(f"the input's shape is {shown(given)}, not a tuple of integers")
    known = {text(graph.input, "the input's name"): size(given, "the input")}
    if not graph.operations:
        raise GraphError("the graph has no operations")
    for position, operation in enumerate(graph.operations):
        try:
            _check_names(operation, known)
            inputs = [known[name] for name in operation.inputs]
            known[operation.output] = size(output_shape(operation, inputs), "the output")
        except GraphError as error:
            raise GraphError(f"{described(operation, position)}: {error}") from None
    if graph.output not in [operation.output for operation in graph.operations]:
        raise GraphError(f"the graph's output {shown(graph.output)} is made by no operation")
    return known


def described(operation: Operation, position: int) -> str:
    """How messages call an operation."""
    kind = shown(operation.kind)
    layer = f" of layer {shown(operation.layer)}" if operation.layer else ""
    return f"operation {position} ({kind}{layer})"


def _check_names(operation: Operation, known: dict[str, Shape]) -> None:
    if operation.layer != "":
        text(operation.layer, "the layer's name")
    if text(operation.output, "the output's name") in known:
        raise GraphError(f"the value {shown(operation.output)} is made twice")
    for name in operation.inputs:
        if not isinstance(name, str) or name not in known:
            raise GraphError(f"no operation before it makes its input {shown(name)}")
