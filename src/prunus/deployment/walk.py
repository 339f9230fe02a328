"""Translates what `torch.export` traced: the nodes of its program become operations of a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import UnionType
from typing import Any

import torch
from torch import Tensor, fx

from prunus.deployment.axes import Axes, Size, standard
from prunus.deployment.operators import (
    ON_SCORES,
    OPERATORS,
    PerToken,
    Scores,
    Unsupported,
    Value,
    array_of,
)
from prunus.deployment.operators.per_token import computed
from prunus.deployment.operators.views import settled
from prunus.errors import DeployError
from prunus_runtime.graph import Graph, Operation, Shape


class Walk:
    """Translates the nodes of an exported program to operations.

    Every node is a tensor that does not depend on the input, or the name of a value that does, or a
    mask that is known for every token, or the scores of an attention, or a list of these.
    """

    def __init__(self, program: torch.export.ExportedProgram, input_shape: Shape) -> None:
        self.program = program
        self.input_shape = input_shape
        self.known: dict[fx.Node, Any] = {}
        self.shapes: dict[str, Shape] = {}
        self.operations: dict[str, Operation] = {}
        self.source = Value()  # the input
        self._node: fx.Node  # the one at hand

    def graph(self) -> Graph:
        """The whole graph, without what nothing reads."""
        self._check_signature()
        for node in self.program.graph.nodes:
            self._node = node
            if node.op == "placeholder":
                constant = self._stored(node.name)
                if constant is None:
                    self.source = Value(node.name)
                    self.shapes[self.source] = self.input_shape
                self.known[node] = self.source if constant is None else constant
            elif node.op == "call_function":
                self.known[node] = self._result(node)
            elif node.op == "output":
                (result,) = (value for value in node.args[0])
                output = self.known[result]
        if isinstance(output, Scores):
            raise DeployError("the model's output is the scores of an attention")
        if not isinstance(output, Value):
            raise DeployError("the model's output does not depend on its input")
        try:
            output = settled(self, output)
        except Unsupported as error:
            raise DeployError(f"the model's output is not supported {error}") from None
        if output == self.source:
            raise DeployError("the model does nothing: its output is its input")
        return without_unread(
            Graph(self.source, self.input_shape, tuple(self.operations.values()), output)
        )

    def _check_signature(self) -> None:
        signature = self.program.graph_signature
        if len(signature.user_inputs) != 1 or len(signature.user_outputs) != 1:
            raise DeployError(
                f"a deployed network has one input and one output; this model has "
                f"{len(signature.user_inputs)} and {len(signature.user_outputs)}"
            )
        if signature.buffers_to_mutate:
            names = ", ".join(signature.buffers_to_mutate.values())
            raise DeployError(f"the model changes its buffers as it runs: {names}")

    def _stored(self, name: str) -> Tensor | None:
        signature, program = self.program.graph_signature, self.program
        for names in (
            signature.inputs_to_parameters,
            signature.inputs_to_buffers,
            signature.inputs_to_lifted_tensor_constants,
        ):
            if name in names:
                tensor = program.state_dict.get(names[name], program.constants.get(names[name]))
                assert isinstance(tensor, Tensor)
                return tensor.detach()
        return None

    def _result(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            return self.known[node.args[0]][node.args[1]]  # type: ignore[index]
        if not isinstance(node.meta.get("val"), Tensor | list | tuple):
            # Arithmetic on the size of the batch: constants are made for a batch of one.
            value = node.meta.get("val")
            return _size(value).number if isinstance(value, int | torch.SymInt) else None
        if not isinstance(node.target, torch._ops.OpOverload):
            return None
        arguments = fx.node.map_arg(_arguments(node), lambda argument: self.known[argument])
        name = node.target._schema.name.removeprefix("aten::")
        try:
            if not _has(arguments, Value | Scores):
                if not _has(arguments, PerToken):
                    return self.called(lambda known: known)
                return computed(self, name, [self.known[n] for n in node.all_input_nodes])
            is_mask = name == "scaled_dot_product_attention" or _has(arguments, Scores)
            if _has(arguments, PerToken) and not is_mask:
                raise Unsupported("on a mask that depends on tokens and another value")
            translate = (ON_SCORES if _has(arguments, Scores) else OPERATORS).get(name)
            if translate is None:
                raise self.unsupported(f"the operation {name} is not known")
            return translate(self, arguments)
        except Unsupported as error:
            raise self.unsupported(f"the operation {name} is not supported {error}") from None

    # What the operators call

    def called(self, change: Callable[[Any], Any]) -> Any:
        """What the node's operator makes of its operands, each of which is changed first."""
        args, kwargs = fx.node.map_arg(
            (self._node.args, self._node.kwargs), lambda node: change(self.known[node])
        )
        with torch.no_grad():
            return self._node.target(*args, **kwargs)  # type: ignore[operator]

    def most_tokens(self) -> int:
        """How many rows the largest embedding table has."""
        nodes = self.program.graph.find_nodes(
            op="call_function", target=torch.ops.aten.embedding.default
        )
        return max((node.args[0].meta["val"].shape[0] for node in nodes), default=0)

    def add(
        self,
        kind: str,
        /,
        *inputs: Value,
        shape: Sequence[int] | None = None,
        axes: Axes | None = None,
        tensors: Mapping[str, Tensor | None] | None = None,
        **attributes: Any,
    ) -> Value:
        """Write down an operation; the name of its value, which has the node's shape, or `shape`
        and `axes`."""
        name = self._node.name
        while name in self.shapes:
            name = f"{name}_"
        self.operations[name] = Operation(
            kind,
            inputs,
            name,
            attributes,
            {k: array_of(t) for k, t in (tensors or {}).items() if t is not None},
            self.layer,
        )
        self.shapes[name] = self.node_shape() if shape is None else tuple(shape)
        return Value(name, axes)

    def like(self, kind: str, x: Value, /, *others: Value, **options: Any) -> Value:
        """Write down an operation whose value has the shape and axes of its first input."""
        return self.add(kind, x, *others, shape=self.shapes[x], axes=x.axes, **options)

    def axes(self, x: Value) -> Axes:
        """How PyTorch reads `x`."""
        return standard(self.shapes[x]) if x.axes is None else x.axes

    def view(self, x: Value, axes: Axes) -> Value:
        """`x` as PyTorch reads it with other `axes`."""
        return Value(x, None if axes == standard(self.shapes[x]) else axes)

    def again(self, operation: Operation, shape: Shape, **changes: Any) -> Value:
        """Write down a variant of an earlier operation, whose value has another shape."""
        name = Value(f"{self._node.name}_of_{operation.output}")
        self.operations[name] = replace(operation, output=name, **changes)
        self.shapes[name] = shape
        return name

    def node_sizes(self) -> list[Size]:
        """The sizes of all axes of the node's value."""
        value = self._node.meta["val"]
        return [_size(size) for size in value.shape] if isinstance(value, Tensor) else []

    def node_shape(self) -> Shape:
        """The shape of the node's value without the batch, which must come first."""
        sizes = self.node_sizes()
        if not sizes or sizes[0] != (True, 1) or any(size.of_batch for size in sizes[1:]):
            shape = list(getattr(self._node.meta["val"], "shape", ()))
            raise Unsupported(f"on values of the shape {shape}: the batch must come first")
        if len(sizes) not in (2, 3, 4):
            raise Unsupported(
                f"with a result of {len(sizes)} dimensions; a deployed network computes with "
                "(n, channels, height, width), (n, positions, channels) and (n, features)"
            )
        return tuple(size.number for size in sizes[1:])

    @property
    def layer(self) -> str:
        """The path of the module that the node belongs to."""
        stack = self._node.meta.get("nn_module_stack") or {}
        paths = [path for path, _ in stack.values()]
        return str(paths[-1]) if paths else ""

    def unsupported(self, problem: str) -> DeployError:
        """The error for the node at hand."""
        layer = self.layer
        where = f"in the layer {layer}" if layer else "in the model's own forward"
        return DeployError(f"{problem}: it is used {where}")


def without_unread(graph: Graph) -> Graph:
    """The graph without operations whose value nothing reads."""
    needed = {graph.output}
    operations = []
    for operation in reversed(graph.operations):
        if operation.output in needed:
            needed.update(operation.inputs)
            operations.append(operation)
    return replace(graph, operations=tuple(reversed(operations)))


def _size(value: int | torch.SymInt) -> Size:
    """A size, in which the batch is the only symbol."""
    if isinstance(value, int):
        return Size(False, value)
    expression = value.node.expr
    (batch,) = expression.free_symbols
    rest = expression / batch
    if rest.free_symbols:
        raise Unsupported(f"on values of the size {value}")
    return Size(True, int(rest))


def _arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of an ATen call by name, with the defaults of its schema."""
    assert isinstance(node.target, torch._ops.OpOverload)
    result = {}
    for position, argument in enumerate(node.target._schema.arguments):
        if position < len(node.args) and not argument.kwarg_only:
            result[argument.name] = node.args[position]
        elif argument.name in node.kwargs:
            result[argument.name] = node.kwargs[argument.name]
        else:
            result[argument.name] = argument.default_value
    return result


def _has(arguments: Any, kind: type | UnionType) -> bool:
    """Whether anything of this kind is among the arguments, at any depth."""
    if isinstance(arguments, Mapping):
        return _has(list(arguments.values()), kind)
    if isinstance(arguments, list | tuple):
        return any(_has(argument, kind) for argument in arguments)
    return isinstance(arguments, kind)
