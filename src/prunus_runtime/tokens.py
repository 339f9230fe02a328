"""Networks whose input is tokens: which numbers, and sequences of which lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.checks import MAX_SIZE, shown
from prunus_runtime.errors import GraphError, InputError
from prunus_runtime.operation import Array, Operation, Shape

ANY_LENGTH = {
    *("embedding", "add_plane", "norm", "linear", "attention", "activation", "affine", "softmax"),
    *("add", "multiply", "concatenate", "mean", "slice", "transpose", "flatten", "quantize"),
}
"""Kinds that do with the first positions of a sequence what they do with a shorter one."""


@dataclass(frozen=True)
class Tokens:
    """The input is whole numbers from 0 to before `vocabulary`, as many as the input's shape says;
    or, if `shorter`, that many or fewer. Inside the network they are float32, which holds such
    numbers exactly."""

    vocabulary: int
    shorter: bool = False

    def check(self, input_shape: Shape) -> None:
        """That they fit an input of this shape."""
        if type(self.shorter) is not bool:
            raise GraphError(f"`shorter` is {shown(self.shorter)}, not true or false")
        if type(self.vocabulary) is not int or not 1 <= self.vocabulary <= MAX_SIZE:
            raise GraphError(f"the vocabulary is {shown(self.vocabulary)}, not 1 to {MAX_SIZE}")
        if len(input_shape) != 1:
            raise GraphError(f"the input's shape is {input_shape}; of tokens it is (positions,)")

    def inputs(self, x: NDArray[Any], input_shape: Shape) -> Array:
        """Token numbers (n, positions) as the network takes them."""
        if x.dtype.kind not in "iu":
            raise InputError(f"the input is of {x.dtype}; tokens are integers, such as int64")
        lengths = range(1, input_shape[0] + 1) if self.shorter else input_shape
        if x.ndim != 2 or x.shape[1] not in lengths:
            wanted = f"1 to {input_shape[0]}" if self.shorter else f"{input_shape[0]}"
            raise InputError(f"the input has shape {x.shape}, not (n, {wanted})")
        if x.size and not 0 <= x.min() <= x.max() < self.vocabulary:
            raise InputError(
                f"the input has tokens from {x.min()} to {x.max()}; the network knows those from 0 "
                f"to {self.vocabulary - 1}"
            )
        return x.astype(np.float32)


def check_any_length(
    operations: Sequence[Operation], output: str, shapes: Mapping[str, Shape]
) -> None:
    """`GraphError` if shorter sequences would not be the first positions of the longest one.

    Every value is the tokens, a sequence of their length, or features; only the output may have
    positions as its channels.
    """
    (source, (longest,)), *_ = shapes.items()
    for operation in operations:
        made, inputs = operation.output, operation.inputs
        shape, kind = shapes[made], operation.kind
        fits = kind in ANY_LENGTH
        fits &= (kind == "embedding") == (source in inputs)
        fits &= all(len(shapes[name]) < 3 for name in inputs)
        if kind == "transpose":
            fits &= made == output
        elif kind == "flatten":  # one position
            fits &= shapes[inputs[0]][1:] == (1,)
        elif kind == "slice":  # of channels, or the first position
            whole = shape[1:] == shapes[inputs[0]][1:]
            fits &= whole or operation.attributes["stop"][1] == 1
        else:
            fits &= shape[1:] in ((), (1,), (longest,))
        if kind == "attention":
            fits &= all(shapes[name][1] == longest for name in inputs[:3])
        if not fits or (made == output and kind != "transpose" and len(shape) == 2):
            raise GraphError(f"sequences cannot be shorter: {kind!r} makes {shown(made)} of all")
