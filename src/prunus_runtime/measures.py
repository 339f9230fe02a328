"""How large a network is, and how much work: counted from its graph."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from prunus_runtime.graph import Graph


@dataclass(frozen=True)
class LayerMeasures:
    """One convolution or linear layer: all its weights and those that are kept (not zero), and the
    multiply-adds for one image with all of them and with the kept ones."""

    name: str
    kind: str
    weights: int
    kept: int
    macs: int
    kept_macs: int


@dataclass(frozen=True)
class Measures:
    """All layers with weights, and their sums. `parameters` counts all numbers in all tensors:
    weights, biases, scales, shifts and planes."""

    layers: tuple[LayerMeasures, ...]
    parameters: int

    @property
    def weights(self) -> int:
        return sum(layer.weights for layer in self.layers)

    @property
    def kept(self) -> int:
        return sum(layer.kept for layer in self.layers)

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    @property
    def kept_macs(self) -> int:
        return sum(layer.kept_macs for layer in self.layers)

    @property
    def float32_bytes(self) -> int:
        """Of all parameters, also those that are zero, in float32."""
        return 4 * self.parameters

    def __str__(self) -> str:
        sums = (self.weights, self.kept, self.macs, self.kept_macs)
        total = LayerMeasures("total", "", *sums)
        rows = [("layer", "kind", "weights", "kept", "%", "multiply-adds", "kept", "%")]
        for layer in (*self.layers, total):
            work, share = _share(layer.kept_macs, layer.macs), _share(layer.kept, layer.weights)
            numbers = (f"{layer.weights:,}", f"{layer.kept:,}", share)
            rows.append(
                (layer.name, layer.kind, *numbers, f"{layer.macs:,}", f"{layer.kept_macs:,}", work)
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if column < 2 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )


def measure(graph: Graph) -> Measures:
    """Count weights and multiply-adds of a valid `graph`."""
    layers = []
    for operation in graph.operations:
        if not operation.is_layer:
            continue
        weight = operation.tensors["weight"]
        positions = math.prod(graph.shapes[operation.output][1:])
        kept = int(np.count_nonzero(weight))
        layers.append(
            LayerMeasures(
                operation.layer or operation.output,
                operation.kind,
                weight.size,
                kept,
                weight.size * positions,
                kept * positions,
            )
        )
    sizes = [tensor.size for operation in graph.operations for tensor in operation.tensors.values()]
    return Measures(tuple(layers), sum(sizes))


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}" if whole else ""
