"""A network as data: what `prunus.deploy` captures and compacts, and what the runtime runs.

A graph is a list of operations in an order in which they can be done. Every value has a name and a
shape without the batch, `(channels, height, width)` or `(features,)`; the batch comes first in the
arrays and is not part of the graph.

| operation | inputs | attributes | tensors |
| --- | --- | --- | --- |
| `conv` | x | `stride` [2], `padding` [4], `dilation` [2], `groups` | `weight`, `bias`, `plane` |
| `linear` | x | | `weight` (O, I), `bias` (O) |
| `affine` | x | | `scale` (C), `shift` (C) |
| `max_pool` | x | `kernel` [2], `stride` [2], `padding` [4], `dilation` [2] | |
| `avg_pool` | x | `kernel` [2], `stride` [2], `padding` [4], `count_padding` | |
| `adaptive_avg_pool` | x | `size` [2] | |
| `activation` | x | `kind`, and of some kinds `low`, `high`, `slope` | |
| `add`, `multiply` | a, b | | |
| `concatenate` | two or more | | |
| `flatten` | x | | |
| `pad` | x | `channels` [2], `padding` [4] | |
| `slice` | x | `start` [3], `stop` [3], `step` [3] | |
| `softmax` | x | `log` | |

A convolution's `weight` is (O, I/groups, kh, kw), its `bias` (O), its `plane` (O, H, W): constants
that are added to its output at their positions, because they differ at the borders. `bias`,
`plane`, `scale` and `shift` may be absent. `padding` is [top, left, bottom, right]; that of
`max_pool` is minus infinity, all other is zero. A pooling that must look further (`ceil_mode`) has
it in `padding` at the bottom and right; averages never count that part: `count_padding` [4] is
what they count.
`a` and `b` have one shape, or `b` has one value for each channel of `a`: shape (C, 1, 1).
`linear` takes (features,); `pad` and `slice` take images. `concatenate` and `softmax` go over the
channels, or the features. All sizes are at least 1, and all numbers are finite: `shapes` checks it.

Kinds of activation: relu, clamp (`low`, `high`), leaky_relu (`slope`), elu (`slope`), sigmoid,
tanh, silu, hardswish, hardsigmoid, gelu, gelu_tanh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """One step: reads the values named `inputs`, makes the value `output`."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Array] = field(default_factory=dict)
    """float32, dense, removed weights are exactly zero."""
    layer: str = ""
    """The module of the model that this came from, for messages and reports."""


@dataclass(frozen=True)
class Graph:
    """A network: one input, one output."""

    input: str
    input_shape: Shape
    operations: tuple[Operation, ...]
    output: str
