"""Removing what cannot matter: the network afterwards computes the same, and is smaller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prunus.deployment.channels import SOURCE, Keep, is_constant, needed_channels, without_channels
from prunus.deployment.constants import Known, known_values, of_channels, uniform
from prunus.deployment.fold import fold
from prunus_runtime.graph import Array, Graph, Operation


def compact(graph: Graph) -> Graph:
    """The graph without channels that are constant or that nothing reads, and with `affine` folded.

    Exact up to rounding. The constant that an empty filter puts out goes into the bias of what reads
    it. Where zero padding makes that wrong at the borders, it goes into a plane of the reading
    convolution if that has no more numbers than the weights which it replaces, and stays where it is
    otherwise. The shapes of input and output do not change.
    """
    before: Any = None
    while before != (before := _signature(graph)):
        graph = _smaller(fold(graph))
    return graph


def _smaller(graph: Graph) -> Graph:
    known = known_values(graph)
    operations = tuple(_absorbed(operation, known) for operation in graph.operations)
    graph = replace(graph, operations=operations)
    needed = needed_channels(graph, known)
    operations = tuple(
        part for operation in operations for part in _settled(graph, operation, known, needed)
    )
    for operation in operations:  # what constants are made of
        needed.setdefault(operation.output, np.ones(graph.input_shape[0], dtype=bool))
    return without_channels(replace(graph, operations=operations), needed)


def _signature(graph: Graph) -> Any:
    """Changes with everything that makes a graph smaller."""
    return [
        (o.kind, o.inputs, [(t.shape, np.count_nonzero(t)) for t in o.tensors.values()])
        for o in graph.operations
    ]


def _absorbed(operation: Operation, known: Mapping[str, Known]) -> Operation:
    """The operation with constants of its inputs inside its own tensors."""
    value = known[operation.inputs[0]]
    if operation.kind in ("conv", "linear"):
        return _absorbed_in_layer(operation, value, known[operation.output].content)
    if operation.kind in ("add", "multiply"):
        other = known[operation.inputs[1]]
        if value.channels.all() and value.content.shape == other.content.shape:
            return _as_affine(operation, operation.inputs[1], value)
        if other.channels.all():
            return _as_affine(operation, operation.inputs[0], other)
    return operation


def _as_affine(operation: Operation, variable: str, constant: Known) -> Operation:
    if not uniform(constant.content).all():
        return operation
    name = "shift" if operation.kind == "add" else "scale"
    numbers = (
        constant.content[0].flatten(1)[:, 0] if constant.content.ndim > 2 else constant.content[0]
    )
    return replace(operation, kind="affine", inputs=(variable,), tensors={name: _array(numbers)})


def _absorbed_in_layer(layer: Operation, value: Known, total: Tensor) -> Operation:
    """`total` is what the layer puts out if all that is unknown of its input were zero."""
    weight = layer.tensors["weight"]
    replaced = of_channels(layer, value.channels) & (weight != 0)
    if not replaced.any():
        return layer
    bias, plane = bias_and_plane(total)
    if plane is not None and np.count_nonzero(plane) > np.count_nonzero(
        replaced
    ) + np.count_nonzero(layer.tensors.get("plane", 0)):
        # Too many numbers: only what multiplies zeros goes.
        zero = value.channels & (value.content[0].flatten(1) == 0).all(1).numpy()
        tensors = {"weight": np.where(of_channels(layer, zero), np.float32(0), weight)}
        return replace(layer, tensors={**layer.tensors, **tensors})
    tensors = {"weight": np.where(replaced, np.float32(0), weight), "bias": bias}
    if plane is not None:
        tensors["plane"] = plane
    return replace(layer, tensors=tensors)


def bias_and_plane(total: Tensor) -> tuple[Array, Array | None]:
    """A constant output as one number a channel, and what differs from it at some positions."""
    if total.ndim == 2:
        return _array(total[0]), None
    height, width = total.shape[2:]
    middle = total[0, :, height // 2, width // 2]
    same = torch.from_numpy(uniform(total))
    rest = (total[0] - middle[:, None, None]).masked_fill(same[:, None, None], 0.0)
    rest[rest.abs() <= 1e-12 * total[0].abs().amax((1, 2), keepdim=True)] = 0.0
    return _array(middle), _array(rest) if bool(rest.any()) else None


def _settled(
    graph: Graph, operation: Operation, known: Mapping[str, Known], needed: Keep
) -> list[Operation]:
    """The operation; or, if it puts out constants that are needed, these without their history."""
    output = operation.output
    if not needed[output].any() or not is_constant(graph, operation, known, needed):
        return [operation]
    content = known[output].content
    bias, plane = bias_and_plane(content)
    count, channels = content.shape[1], graph.input_shape[0]
    steps: list[Operation] = []
    if len(graph.input_shape) == 3:
        size = list(content.shape[2:]) or [1, 1]
        pool = Operation("adaptive_avg_pool", (graph.input,), f"{output}{SOURCE}", {"size": size})
        steps = [pool]
    if content.ndim == 2 and steps:
        steps[0] = replace(pool, output=f"{output}{SOURCE}_image")
        steps.append(Operation("flatten", (steps[0].output,), f"{output}{SOURCE}"))
    inputs = (steps[-1].output if steps else graph.input,)
    if content.ndim == 2:
        tensors = {"weight": np.zeros((count, channels), np.float32), "bias": bias}
        return [*steps, Operation("linear", inputs, output, {}, tensors, operation.layer)]
    tensors = {"weight": np.zeros((count, channels, 1, 1), np.float32), "bias": bias}
    if plane is not None:
        tensors["plane"] = plane
    pixelwise = {"stride": [1, 1], "padding": [0] * 4, "dilation": [1, 1], "groups": 1}
    return [*steps, Operation("conv", inputs, output, pixelwise, tensors, operation.layer)]


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.to(torch.float32).contiguous().numpy().copy()
    return array
