"""One operation of a network, as data. What each kind of operation is, `ops` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Shape = tuple[int, ...]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Operation:
    """One step of a network: reads the values named `inputs`, makes the value `output`.

    `tensors` are float32 and whole: removed weights are exactly zero. `layer` is the module of the
    model that the operation came from, for messages and reports.
    """

    kind: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Array] = field(default_factory=dict)
    layer: str = ""

    @property
    def is_layer(self) -> bool:
        """Whether it has weights: a convolution or a linear layer."""
        return "weight" in self.tensors
