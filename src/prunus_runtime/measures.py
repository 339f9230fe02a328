"""How large a network is, and how much work: counted from its graph."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from prunus_runtime.graph import Graph
from prunus_runtime.shapes import shapes


@dataclass(frozen=True)
class LayerMeasures:
    """One convolution or linear layer."""

    name: str
    kind: str
    weights: int
    kept: int
    """Weights that are not zero."""
    macs: int
    """Multiply-adds for one image if all weights are used."""
    kept_macs: int
    """Multiply-adds for one image with kept weights."""


@dataclass(frozen=True)
class Measures:
    """All layers with weights, and their sums."""

    layers: tuple[LayerMeasures, ...]
    parameters: int
    """All numbers in all tensors: weights, biases, scales, shifts and planes."""

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
    def dense_bytes(self) -> int:
        """Of all parameters in float32, which is the size of a dense file."""
        return 4 * self.parameters

    def __str__(self) -> str:
        total = LayerMeasures(
            "total", "", self.weights, self.kept, self.macs, self.kept_macs
        )  # fmt: skip
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
    known = shapes(graph)
    layers = []
    for operation in graph.operations:
        if operation.kind not in ("conv", "linear"):
            continue
        weight = operation.tensors["weight"]
        positions = math.prod(known[operation.output][1:])
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
