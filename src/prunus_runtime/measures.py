"""How large a network is, and how much work: counted from its graph."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from prunus_runtime.graph import Graph
from prunus_runtime.printing import printable, text_table

# A small file can describe many layers, and one long name makes the whole table wide.
_MOST_SHOWN = 1000
_WIDEST = 100


@dataclass(frozen=True)
class LayerMeasures:
    """One convolution or linear layer: all its weights and those that are kept (not zero), and the
    multiply-adds for one image with all of them and with the kept ones."""

    name: str
    kind: str
    weights: int
    kept_weights: int
    macs: int
    kept_macs: int


@dataclass(frozen=True)
class Measures(LayerMeasures):
    """The sums over all `layers` with weights. `parameters` counts all numbers in all tensors:
    weights, biases, scales, shifts and planes."""

    layers: tuple[LayerMeasures, ...]
    parameters: int

    @property
    def float32_bytes(self) -> int:
        """Of all parameters, also those that are zero, in float32."""
        return 4 * self.parameters

    def __str__(self) -> str:
        header = ["layer", "kind", "weights", "kept", "%", "multiply-adds", "kept", "%"]
        rows = [_row(layer) for layer in self.layers[:_MOST_SHOWN]]
        if len(self.layers) > _MOST_SHOWN:
            left_out = len(self.layers) - _MOST_SHOWN
            rows.append([f"... and {left_out:,} more", *[""] * 7])
        return text_table(header, [*rows, _row(self)], left=(0, 1))


def measure(graph: Graph) -> Measures:
    """Count weights and multiply-adds of a valid `graph`."""
    layers = []
    for operation in graph.operations:
        if operation.is_layer:
            weight, positions = operation.tensors["weight"], graph.shapes[operation.output][1:]
            kept, uses = int(np.count_nonzero(weight)), math.prod(positions)
            counts = (weight.size, kept, weight.size * uses, kept * uses)
            name = operation.layer or operation.output
            layers.append(LayerMeasures(name, operation.kind, *counts))
    names = ("weights", "kept_weights", "macs", "kept_macs")
    sums = {name: sum(getattr(layer, name) for layer in layers) for name in names}
    sizes = [tensor.size for operation in graph.operations for tensor in operation.tensors.values()]
    return Measures("total", "", **sums, layers=tuple(layers), parameters=sum(sizes))


def _row(layer: LayerMeasures) -> list[str]:
    weights, macs = _kept(layer.weights, layer.kept_weights), _kept(layer.macs, layer.kept_macs)
    return [printable(layer.name, _WIDEST), layer.kind, *weights, *macs]


def _kept(whole: int, part: int) -> tuple[str, str, str]:
    return f"{whole:,}", f"{part:,}", f"{100 * part / whole:.2f}" if whole else ""
