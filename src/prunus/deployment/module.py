"""A graph as a plain PyTorch module: standard layers, readable names, nothing of Prunus in it."""

from __future__ import annotations

import operator
from collections.abc import Mapping

from torch import Tensor, fx, nn

from prunus.deployment.operators import compute, tensors_of
from prunus.deployment.operators.layers import to_layer
from prunus.deployment.operators.walk import padded
from prunus_runtime.graph import Graph, Operation


def to_module(graph: Graph) -> nn.Module:
    """A module that computes what `graph` does, for evaluation.

    Convolutions and linear layers are `nn.Conv2d` and `nn.Linear` under the names that they had in
    the model; everything else is functions and parameters. It has a `state_dict`, and can be
    saved, exported and compiled like any other module.
    """
    root = nn.Module()
    traced = fx.proxy.GraphAppendingTracer(fx.Graph())
    names = _names(graph)
    values = {graph.input: fx.Proxy(traced.graph.placeholder("x"), traced)}
    for operation, name in zip(graph.operations, names, strict=True):
        inputs = [values[value] for value in operation.inputs]
        if operation.is_layer:
            x, is_sequence = inputs[0], len(graph.shapes[operation.output]) == 2
            x = x.transpose(1, 2) if is_sequence else x
            y = _layer(root, traced, operation, name, x)
            values[operation.output] = y.transpose(1, 2) if is_sequence else y
        else:
            tensors = tensors_of(operation, graph.shapes[operation.inputs[0]])
            used = _parameters(root, traced, name, tensors)
            values[operation.output] = compute(operation, inputs, used)
    traced.graph.output(values[graph.output].node)
    return fx.GraphModule(root, traced.graph, "Compacted").eval().requires_grad_(False)


def _layer(
    root: nn.Module,
    traced: fx.proxy.GraphAppendingTracer,
    operation: Operation,
    name: str,
    x: fx.Proxy,
) -> fx.Proxy:
    tensors = tensors_of(operation)
    layer, padding = to_layer(operation)
    layer.load_state_dict({k: t for k, t in tensors.items() if k != "plane"})
    _add_submodule(root, name, layer)
    y = fx.Proxy(traced.graph.call_module(name, (padded(x, padding).node,)), traced)
    if "plane" not in tensors:
        return y
    plane = _parameters(root, traced, name, {"plane": tensors["plane"]})["plane"]
    result: fx.Proxy = operator.add(y, plane)
    return result


def _parameters(
    root: nn.Module, traced: fx.proxy.GraphAppendingTracer, name: str, tensors: Mapping[str, Tensor]
) -> dict[str, fx.Proxy]:
    """Tensors as parameters of the root, and as what the graph reads there."""
    found = {}
    for kind, tensor in tensors.items():
        attribute = f"{name.replace('.', '_')}_{kind}"
        root.register_parameter(attribute, nn.Parameter(tensor))
        found[kind] = fx.Proxy(traced.graph.get_attr(attribute), traced)
    return found


def _names(graph: Graph) -> list[str]:
    """A path for each operation: its layer's, made different from all others."""
    taken: set[str] = set()
    names = []
    layers = {operation.layer for operation in graph.operations}
    for operation in graph.operations:
        base = operation.layer or operation.kind
        if any(other.startswith(f"{base}.") for other in layers):
            base = f"{base}.{operation.kind}"  # the path is that of a module with layers inside
        name, count = base, 1
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        names.append(name)
    return names


def _add_submodule(root: nn.Module, path: str, module: nn.Module) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        if not hasattr(root, parent):
            root.add_module(parent, nn.Module())
        root = getattr(root, parent)
    root.add_module(name, module)
