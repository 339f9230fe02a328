"""Folding `affine` operations, such as batch norm in evaluation, into the layers around them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from prunus_runtime.graph import Array, Graph, Operation
from prunus_runtime.ops import kind_of
from prunus_runtime.ops.elements import scale_and_shift


def fold(graph: Graph) -> Graph:
    """The graph with every `affine` inside the layer before or after it, where that is exact.

    Exact up to rounding: it is done in float64. Before a convolution with zero padding a shift
    stays where it is, because the padding is not shifted.
    """
    while True:
        folded = _fold_one(graph)
        if folded is None:
            return graph
        graph = folded


def _fold_one(graph: Graph) -> Graph | None:
    makers = {operation.output: operation for operation in graph.operations}
    readers = Counter(name for operation in graph.operations for name in operation.inputs)
    readers[graph.output] += 1
    for operation in graph.operations:
        whole = operation.inputs[0] == graph.input and operation.output == graph.output
        if _is_affine(operation) and kind_of(operation).is_identity(operation) and not whole:
            return _renamed(graph, operation, operation.inputs[0])
        before = makers.get(operation.inputs[0])
        if before is None:
            continue
        alone = readers[before.output] == 1
        if alone and _is_affine(operation) and (before.is_layer or _is_affine(before)):
            return _merged(graph, before, operation, _after(before, operation))
        if alone and _is_affine(before) and operation.is_layer:
            scale, shift = scale_and_shift(before)
            if not np.any(shift) or not any(operation.attributes.get("padding", ())):
                return _merged(graph, before, operation, _into(scale, shift, operation))
    return None


def _is_affine(operation: Operation) -> bool:
    return operation.kind == "affine"


def _merged(graph: Graph, first: Operation, second: Operation, tensors: dict[str, Any]) -> Graph:
    """`first` and then `second` as one operation: the one with weights, with these tensors."""
    merged = replace(
        second if second.is_layer else first,
        inputs=first.inputs,
        output=second.output,
        tensors={name: _array(tensor) for name, tensor in tensors.items()},
    )
    others = (operation for operation in graph.operations if operation is not first)
    return replace(graph, operations=tuple(merged if o is second else o for o in others))


def _after(layer: Operation, affine: Operation) -> dict[str, Any]:
    """The tensors of `layer` with what `affine` does to its output."""
    scale, shift = scale_and_shift(affine)
    if _is_affine(layer):
        first_scale, first_shift = scale_and_shift(layer)
        return {"scale": first_scale * scale, "shift": first_shift * scale + shift}
    weight = layer.tensors["weight"].astype(np.float64)
    tensors: dict[str, Any] = dict(layer.tensors)
    tensors["weight"] = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    tensors["bias"] = _bias_of(layer) * scale + shift
    if "plane" in tensors:
        tensors["plane"] = tensors["plane"] * scale[:, None, None]
    return tensors


def _into(scale: Any, shift: Any, layer: Operation) -> dict[str, Any]:
    """The tensors of `layer` with `scale * x + shift` done to its input."""
    weight = layer.tensors["weight"].astype(np.float64)
    groups = layer.attributes.get("groups", 1)
    grouped = weight.reshape(groups, -1, *weight.shape[1:])  # group, filter, channel, ...
    of_channels = (groups, 1, weight.shape[1], *[1] * (weight.ndim - 2))
    added = (grouped * shift.reshape(of_channels)).sum(axis=tuple(range(2, grouped.ndim)))
    return {
        **layer.tensors,
        "weight": (grouped * scale.reshape(of_channels)).reshape(weight.shape),
        "bias": _bias_of(layer) + added.reshape(-1),
    }


def _renamed(graph: Graph, removed: Operation, value: str) -> Graph:
    """The graph without `removed`, whose readers read `value` instead."""
    operations = [
        replace(o, inputs=tuple(value if i == removed.output else i for i in o.inputs))
        for o in graph.operations
        if o is not removed
    ]
    output = value if graph.output == removed.output else graph.output
    return replace(graph, operations=tuple(operations), output=output)


def _bias_of(layer: Operation) -> Any:
    """The bias in float64; zeros if there is none."""
    if "bias" in layer.tensors:
        return layer.tensors["bias"].astype(np.float64)
    return np.zeros(layer.tensors["weight"].shape[0])


def _array(tensor: Any) -> Array:
    return np.ascontiguousarray(tensor, dtype=np.float32)
