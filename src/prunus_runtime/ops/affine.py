"""A factor and a summand for each channel, such as batch norm in evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prunus_runtime import checks
from prunus_runtime.native.interface import Kernel
from prunus_runtime.operation import Array, Flags, Operation, Shape
from prunus_runtime.ops.kind import Channels, Kind, over_channels
from prunus_runtime.plan.builder import Builder, Step


class Affine(Kind):
    """x * scale + shift. Tensors: `scale` (C), `shift` (C); either may be absent."""

    name = "affine"
    optional_tensors = ("scale", "shift")
    pointwise = True

    def shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        for name in operation.tensors:
            checks.tensor(operation, name, inputs[0][:1])
        return inputs[0]

    def run(self, operation: Operation, inputs: Sequence[Array]) -> Array:
        x = inputs[0]
        if "scale" in operation.tensors:
            x = x * over_channels(operation.tensors["scale"], x)
        if "shift" in operation.tensors:
            x = x + over_channels(operation.tensors["shift"], x)
        return x

    def known(self, operation: Operation, inputs: Sequence[Channels]) -> Flags:
        scale = operation.tensors.get("scale")
        return inputs[0].known if scale is None else inputs[0].known | (scale == 0)

    def is_identity(self, operation: Operation) -> bool:
        scale, shift = scale_and_shift(operation)
        return bool(np.all(scale == 1) and not np.any(shift))

    def emit(self, builder: Builder, step: Step) -> None:
        tensors, channels = step.operation.tensors, builder.places[step.output].channels
        scale = tensors.get("scale", np.ones(channels, np.float32))
        shift = tensors.get("shift", np.zeros(channels, np.float32))
        builder.emit_unary(Kernel.AFFINE, step, floats=(scale, shift))


def scale_and_shift(affine: Operation) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both in float64, also where one is absent."""
    tensors = {name: tensor.astype(np.float64) for name, tensor in affine.tensors.items()}
    scale, shift = tensors.get("scale"), tensors.get("shift")
    if scale is None:
        scale = np.ones_like(shift) if shift is not None else np.ones(1)
    return scale, np.zeros_like(scale) if shift is None else shift
