"""A network as data: what `prunus.deploy` captures and compacts, and what the runtime runs.

A graph is a list of operations in an order in which they can be done. Every value has a name and a
shape without the batch, `(channels, height, width)`, `(channels, positions)` or `(features,)`; the
batch comes first in the arrays and is not part of the graph. All sizes are at least 1, and all
numbers are finite. `ops` has a file for each kind of operation, which describes its inputs,
attributes and tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prunus_runtime.checks import shown, size, text
from prunus_runtime.errors import GraphError
from prunus_runtime.images import Images
from prunus_runtime.operation import Array, Operation, Shape
from prunus_runtime.ops import output_shape
from prunus_runtime.tokens import Tokens, check_any_length

__all__ = ["Array", "Graph", "Operation", "Shape", "described", "infer"]


@dataclass(frozen=True)
class Graph:
    """A network: one input, one output; and how images or tokens become its input, if that is
    known."""

    input: str
    input_shape: Shape
    operations: tuple[Operation, ...]
    output: str
    images: Images | None = None
    tokens: Tokens | None = None

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """The shape of each value by name, without the batch; `GraphError` if it is not valid."""
        found = infer(self)
        for position, operation in enumerate(self.operations):
            for name, tensor in operation.tensors.items():
                if not (np.isfinite(tensor.min()) and np.isfinite(tensor.max())):
                    raise GraphError(
                        f"{described(operation, position)}: `{name}` has values that are not finite"
                    )
        return found

    def check(self) -> Graph:
        """The graph itself, if it is valid; else a `GraphError` names the operation and the reason.

        It is checked once. A valid graph is safe to run: each attribute and tensor is there, of the
        right kind and size, each window, slice and plane lies where it can be read, and all numbers
        are finite.
        """
        assert self.shapes
        return self

    @property
    def output_shape(self) -> Shape:
        """The shape of the output, without the batch."""
        return self.shapes[self.output]


def infer(graph: Graph) -> dict[str, Shape]:
    """`graph.shapes` without looking at the values of tensors."""
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
    if graph.images is not None:
        graph.images.check(graph.input_shape, known[graph.output])
    if graph.tokens is not None:
        graph.tokens.check(graph.input_shape)
        if graph.tokens.shorter:
            check_any_length(graph.operations, graph.output, known)
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
