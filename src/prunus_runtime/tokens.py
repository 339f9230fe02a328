"""Networks whose input is tokens: which numbers, and sequences of which lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.checks import MAX_SIZE, shown
from prunus_runtime.errors import GraphError, InputError
from prunus_runtime.operation import Array, Shape


@dataclass(frozen=True)
class Tokens:
    """The input is whole numbers from 0 to before `vocabulary`, as many as the input's shape says.
    Inside the network they are float32, which holds such numbers exactly."""

    vocabulary: int

    def check(self, input_shape: Shape) -> None:
        """That they fit an input of this shape."""
        if type(self.vocabulary) is not int or not 1 <= self.vocabulary <= MAX_SIZE:
            raise GraphError(f"the vocabulary is {shown(self.vocabulary)}, not 1 to {MAX_SIZE}")
        if len(input_shape) != 1:
            raise GraphError(f"the input's shape is {input_shape}; of tokens it is (positions,)")

    def inputs(self, x: NDArray[Any], input_shape: Shape) -> Array:
        """Token numbers (n, positions) as the network takes them."""
        if x.dtype.kind not in "iu":
            raise InputError(f"the input is of {x.dtype}; tokens are integers, such as int64")
        if x.shape[1:] != input_shape:
            raise InputError(f"the input has shape {x.shape}, not (n, {input_shape[0]})")
        if x.size and not 0 <= x.min() <= x.max() < self.vocabulary:
            raise InputError(
                f"the input has tokens from {x.min()} to {x.max()}; the network knows those from 0 "
                f"to {self.vocabulary - 1}"
            )
        return x.astype(np.float32)
