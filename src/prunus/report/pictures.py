"""Small pictures of masks, for a page that holds many of them."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

LARGEST = 64
"""Pixels of the longer side, at most."""
_SHADES = 16  # four bits

Fractions = NDArray[np.float32]


def kept_fractions(mask: Tensor, side: int = LARGEST) -> Fractions:
    """How much of each kernel is kept: outputs from top to bottom, inputs from left to right.

    Where the layer has more than `side` outputs or inputs, neighbours are averaged.
    """
    kept = mask.detach().numpy()
    if kept.ndim < 2:
        kept = kept.reshape(1, -1)
    means = kept.reshape(kept.shape[0], kept.shape[1], -1).mean(axis=2, dtype=np.float32)
    return shrunk(means, side)


def shrunk(fractions: Fractions, side: int) -> Fractions:
    """The same with at most `side` rows and columns."""
    return _averaged(_averaged(fractions, 0, side), 1, side)


def as_data_url(fractions: Fractions) -> str:
    """A PNG, inline: white keeps nothing, black everything.

    Shades follow the square root of the kept fraction, so that a few per cent can be seen.
    """
    from PIL import Image

    shades = np.rint((_SHADES - 1) * (1 - np.sqrt(fractions))).astype(np.uint8)
    image = Image.fromarray(shades)
    image.putpalette([round(255 * i / (_SHADES - 1)) for i in range(_SHADES) for _ in range(3)])
    buffer = io.BytesIO()
    image.save(buffer, "png", bits=4)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _averaged(values: Fractions, axis: int, side: int) -> Fractions:
    length = values.shape[axis]
    if length <= side:
        return values
    edges = np.linspace(0, length, side + 1).round().astype(int)
    sums: Any = np.add.reduceat(values, edges[:-1], axis=axis)
    widths = np.diff(edges).astype(np.float32)
    result: Fractions = sums / (widths[:, None] if axis == 0 else widths)
    return result
