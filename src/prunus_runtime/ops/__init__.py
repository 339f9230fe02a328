"""Every kind of operation that a network can have: a class each, in a file for each family.

A class says all that the runtime and `prunus.deployment` need to know of its kind: its inputs,
attributes and tensors, the shape of its output, what it computes, how channels flow through it, and
which instructions the native core gets for it. To add a kind, write its class and name it here. Its
kernel is declared in `native/interface.py` and written in `native/kernels.cpp`; how
PyTorch spells it is in `prunus/deployment/operators`.
"""

from __future__ import annotations

from collections.abc import Sequence

from prunus_runtime.errors import GraphError
from prunus_runtime.operation import Operation, Shape
from prunus_runtime.ops.elements import Activation, Add, Affine, Multiply, Softmax
from prunus_runtime.ops.kind import Channels, Kind
from prunus_runtime.ops.layers import Conv, Linear
from prunus_runtime.ops.quantize import Quantize
from prunus_runtime.ops.sequences import AddPlane, Attention, Embedding, Mean, Norm
from prunus_runtime.ops.shaping import Concatenate, Flatten, Pad, Reshape, Slice, Transpose
from prunus_runtime.ops.windows import AdaptiveAvgPool, AvgPool, MaxPool

__all__ = ["KINDS", "Channels", "Kind", "kind_of", "output_shape"]

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        *(Conv(), Linear(), Affine(), MaxPool(), AvgPool(), AdaptiveAvgPool(), Activation()),
        *(Add(), Multiply(), Concatenate(), Flatten(), Pad(), Slice(), Softmax(), Quantize()),
        *(Embedding(), AddPlane(), Norm(), Attention(), Mean(), Reshape(), Transpose()),
    )
}
"""All kinds by name."""


def kind_of(operation: Operation) -> Kind:
    """What kind of operation this is, of an operation of a valid graph."""
    return KINDS[operation.kind]


def output_shape(operation: Operation, inputs: Sequence[Shape]) -> Shape:
    """The shape of what `operation` makes of valid `inputs`; `GraphError` if it cannot."""
    if not isinstance(operation.kind, str) or operation.kind not in KINDS:
        raise GraphError(f"the runtime has no such operation; it has {', '.join(sorted(KINDS))}")
    return KINDS[operation.kind].output_shape(operation, inputs)
