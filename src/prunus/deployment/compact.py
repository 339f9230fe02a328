"""Removing what cannot matter: the network afterwards computes the same, and is smaller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prunus.deployment.channels import (
    SOURCE,
    Keep,
    Known,
    is_constant,
    known_values,
    needed_channels,
    uniform,
    without_channels,
)
from prunus.deployment.fold import fold
from prunus.deployment.operators import array_of
from prunus_runtime.graph import Array, Graph, Operation
from prunus_runtime.operation import Flags
from prunus_runtime.ops import kind_of
from prunus_runtime.ops.layers import PIXELWISE


def compact(graph: Graph) -> Graph:
    """The graph without channels that are constant or that nothing reads, and with `affine` folded.

    Exact up to rounding. The constant that an empty filter puts out goes into the bias of what
    reads it. Where zero padding makes that wrong at the borders, it goes into a plane of the
    reading convolution if that has no more numbers than the weights which it replaces, and stays
    where it is otherwise. The shapes of input and output do not change.
    """
    while True:
        smaller = _smaller(fold(graph))
        if _signature(smaller) == _signature(graph):
            return smaller
        graph = smaller


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
    """Differs between two graphs if one is smaller than the other."""
    return [
        (o.kind, o.inputs, [(t.shape, np.count_nonzero(t)) for t in o.tensors.values()])
        for o in graph.operations
    ]


def _absorbed(operation: Operation, known: Mapping[str, Known]) -> Operation:
    """The operation with constants of its inputs inside its own tensors."""
    value = known[operation.inputs[0]]
    if operation.is_layer:
        return _absorbed_in_layer(operation, value, known[operation.output].content)
    tensor = kind_of(operation).constant_operand
    if tensor is not None:
        other = known[operation.inputs[1]]
        if value.channels.all() and value.shape == other.shape:
            return _as_affine(operation, operation.inputs[1], tensor, value)
        if other.channels.all():
            return _as_affine(operation, operation.inputs[0], tensor, other)
    return operation


def _as_affine(operation: Operation, variable: str, tensor: str, constant: Known) -> Operation:
    if not uniform(constant.content).all():
        return operation
    numbers = constant.content[0].reshape(len(constant.channels), -1)[:, 0]
    tensors = {tensor: array_of(numbers)}
    return replace(operation, kind="affine", inputs=(variable,), tensors=tensors)


def _absorbed_in_layer(layer: Operation, value: Known, total: Tensor) -> Operation:
    """`total` is what the layer puts out if all that is unknown of its input were zero."""
    weight = layer.tensors["weight"]
    replaced = _reading(layer, value.channels) & (weight != 0)
    if not replaced.any():
        return layer
    bias, plane = bias_and_plane(total)
    allowed = np.count_nonzero(replaced) + np.count_nonzero(layer.tensors.get("plane", 0))
    if plane is not None and (layer.kind == "linear" or np.count_nonzero(plane) > allowed):
        # Too many numbers, or no place for them: only what multiplies zeros goes.
        tensors = {"weight": np.where(_reading(layer, value.zero), np.float32(0), weight)}
        return replace(layer, tensors={**layer.tensors, **tensors})
    tensors = {"weight": np.where(replaced, np.float32(0), weight), "bias": bias}
    if plane is not None:
        tensors["plane"] = plane
    return replace(layer, tensors=tensors)


def _reading(layer: Operation, channels: Flags) -> Flags:
    """Of each weight of `layer`: whether it reads one of `channels`."""
    weight, groups = layer.tensors["weight"], layer.attributes.get("groups", 1)
    per_group = channels.reshape(groups, weight.shape[1])
    chosen = np.repeat(per_group, weight.shape[0] // groups, axis=0)
    shape = (*chosen.shape, *[1] * (weight.ndim - 2))
    return np.broadcast_to(chosen.reshape(shape), weight.shape)


def bias_and_plane(total: Tensor) -> tuple[Array, Array | None]:
    """A constant output as one number a channel, and what differs from it at some positions."""
    if total.ndim == 2:
        return array_of(total[0]), None
    planes, shape = total[0].flatten(1), total.shape[1:]
    middle = planes[:, int(np.ravel_multi_index([size // 2 for size in shape[1:]], shape[1:]))]
    same = torch.from_numpy(uniform(total))
    rest = (planes - middle[:, None]).masked_fill(same[:, None], 0.0)
    rest[rest.abs() <= 1e-12 * planes.abs().amax(1, keepdim=True)] = 0.0
    return array_of(middle), array_of(rest.reshape(shape)) if bool(rest.any()) else None


def _settled(
    graph: Graph, operation: Operation, known: Mapping[str, Known], needed: Keep
) -> list[Operation]:
    """The operation itself; or, if it only puts out constants, what makes these more directly."""
    output = operation.output
    if not needed[output].any() or not is_constant(graph, operation, known, needed):
        return [operation]
    content = known[output].content
    bias, plane = bias_and_plane(content)
    count, channels = content.shape[1], graph.input_shape[0]
    steps = _source(graph, f"{output}{SOURCE}", list(content.shape[2:]))
    inputs = (steps[-1].output if steps else graph.input,)
    if content.ndim == 2:
        tensors = {"weight": np.zeros((count, channels), np.float32), "bias": bias}
        return [*steps, Operation("linear", inputs, output, {}, tensors, operation.layer)]
    tensors = {"weight": np.zeros((count, channels, 1, 1), np.float32), "bias": bias}
    if plane is not None:
        tensors["plane"] = plane
    return [*steps, Operation("conv", inputs, output, PIXELWISE, tensors, operation.layer)]


def _source(graph: Graph, name: str, positions: list[int]) -> list[Operation]:
    """The operations that make a value of these positions from the graph's input, of whatever
    numbers, for a constant to be made of."""
    if len(graph.input_shape) == 1:
        return []
    if len(graph.input_shape) == 2:
        return [Operation("mean", (graph.input,), name)]
    if positions:
        return [Operation("adaptive_avg_pool", (graph.input,), name, {"size": positions})]
    image = f"{name}_image"
    pool = Operation("adaptive_avg_pool", (graph.input,), image, {"size": [1, 1]})
    return [pool, Operation("flatten", (image,), name)]
