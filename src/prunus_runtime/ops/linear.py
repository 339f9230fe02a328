"""Linear layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prunus_runtime import checks
from prunus_runtime.errors import GraphError
from prunus_runtime.native.interface import Place
from prunus_runtime.operation import Array, Operation, Shape
from prunus_runtime.ops.layer import Layer
from prunus_runtime.plan.builder import Builder, Step
from prunus_runtime.plan.lists import Lists, make_lists

MATRIX = 0.3
"""From this density on, a linear layer of one image is faster as a whole matrix."""


class Linear(Layer):
    """Of features. Tensors: `weight` (O, I), `bias` (O) if it has one."""

    name = "linear"
    optional_tensors = ("bias",)

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        weight = checks.tensor(operation, "weight")
        if len(inputs[0]) != 1:
            raise GraphError(f"its input has shape {inputs[0]}, not (features,)")
        if len(weight) != 2 or weight[1] != inputs[0][0]:
            raise GraphError(
                f"`weight` of shape {weight} does not fit an input of shape {inputs[0]}"
            )
        if "bias" in operation.tensors:
            checks.tensor(operation, "bias", (weight[0],))
        return (weight[0],)

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        y: Array = inputs[0] @ operation.tensors["weight"].T
        if "bias" in operation.tensors:
            y += operation.tensors["bias"]
        return y

    def weights(self, builder: Builder, step: Step) -> tuple[Place, Lists]:
        a = builder.places[step.inputs[0]]
        offsets = np.arange(a.channels)[:, None, None] * a.plane
        return a, make_lists(step.operation.tensors["weight"][:, :, None, None], 1, offsets)

    def is_matrix(self, step: Step, a: Place, lists: Lists) -> bool:
        weight = step.operation.tensors["weight"]
        return a.plane == 1 and len(lists.entries) > MATRIX * weight.size
