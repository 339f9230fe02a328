"""Tensors as bytes: where the values are that are not zero, and what they are.

Positions are the smallest of: nothing (`all` values are stored), a `bitmap`, or `gaps`: for each
kept value one byte, the number of zeros before it; 255 stands for 255 zeros and no value. Values
are `fp32`, `fp16` or `int8`, all first bytes before all second bytes and so on, because that
compresses better. `int8` has a float32 scale for each output channel: a value is its integer times
the scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.checks import MAX_ELEMENTS, shown
from prunus_runtime.errors import RuntimeFileError
from prunus_runtime.operation import Array, Shape

STORES: dict[str, np.dtype[Any]] = {
    "fp32": np.dtype("<f4"),
    "fp16": np.dtype("<f2"),
    "int8": np.dtype("i1"),
}
"""How values can be stored."""


@dataclass(frozen=True)
class Stored:
    """What the header of a file says about one tensor; it gives the sizes of all its parts."""

    shape: Shape
    values: str
    positions: str
    kept: int
    position_bytes: int

    def described(self) -> dict[str, Any]:
        """For the header."""
        return {**vars(self), "shape": list(self.shape)}

    @classmethod
    def parse(cls, entry: object) -> Stored:
        """From the header; refuses what cannot be or would take absurd memory."""
        if not isinstance(entry, dict) or set(entry) != set(cls.__dataclass_fields__):
            raise RuntimeFileError(f"is described by {shown(entry)}")
        shape = entry["shape"]
        if not isinstance(shape, list) or not 1 <= len(shape) <= 4:
            raise RuntimeFileError(f"has shape {shown(shape)}")
        for length in [*shape, entry["kept"], entry["position_bytes"]]:
            if type(length) is not int or not 0 <= length <= MAX_ELEMENTS:
                raise RuntimeFileError(f"has a size of {shown(length)}")
        count = math.prod(shape)
        if not 1 <= count <= MAX_ELEMENTS:
            raise RuntimeFileError(f"has {count} elements; from 1 to {MAX_ELEMENTS} are possible")
        if not isinstance(entry["values"], str) or entry["values"] not in STORES:
            raise RuntimeFileError(f"has values of kind {shown(entry['values'])}")
        kept, size = entry["kept"], entry["position_bytes"]
        bitmap = -(-count // 8)
        fits = {
            "all": size == 0 and kept == count,
            "bitmap": size == bitmap and kept <= count,
            "gaps": kept <= size <= bitmap,
        }
        if not isinstance(entry["positions"], str) or not fits.get(entry["positions"], False):
            raise RuntimeFileError(
                f"has {kept} of {count} values at positions of kind {shown(entry['positions'])} "
                f"in {size} bytes"
            )
        return cls(tuple(shape), entry["values"], entry["positions"], kept, size)


def encode(tensor: Array, store: str) -> tuple[Stored, list[bytes]]:
    """How to store `tensor`, and the bytes."""
    codes, scales = _rounded(tensor, store)
    flat = codes.reshape(-1)
    places = np.flatnonzero(flat)
    itemsize, gaps = STORES[store].itemsize, _gaps(places)
    sizes = {
        "all": flat.size * itemsize,
        "bitmap": -(-flat.size // 8) + len(places) * itemsize,
        "gaps": len(gaps) + len(places) * itemsize,
    }
    kind = min(sizes, key=lambda name: sizes[name])
    values = flat if kind == "all" else flat[places]
    positions = b""
    if kind != "all":
        positions = (gaps if kind == "gaps" else np.packbits(flat != 0)).tobytes()
    planes = values.view(np.uint8).reshape(len(values), itemsize).T
    stored = Stored(tensor.shape, store, kind, len(values), len(positions))
    return stored, [positions, planes.tobytes(), scales.tobytes()]


def decode(stored: Stored, read: Callable[[int], bytes]) -> Array:
    """The tensor, from what `read(size)` gives."""
    shape, count = stored.shape, math.prod(stored.shape)
    where = _places(stored, count, np.frombuffer(read(stored.position_bytes), np.uint8))
    kind = STORES[stored.values]
    planes = np.frombuffer(read(stored.kept * kind.itemsize), np.uint8)
    values = np.ascontiguousarray(planes.reshape(kind.itemsize, stored.kept).T).view(kind)[:, 0]
    tensor = np.zeros(count, np.float32)
    tensor[where] = values
    tensor = tensor.reshape(shape)
    if stored.values == "int8":
        scales = np.frombuffer(read(4 * shape[0]), "<f4")
        with np.errstate(over="ignore", invalid="ignore"):  # checked with all other values
            tensor *= scales.reshape(-1, *[1] * (len(shape) - 1))
    return tensor


def _rounded(tensor: Array, store: str) -> tuple[NDArray[Any], Array]:
    """What is stored of `tensor`, and the scales, of which all but int8 have none."""
    none = np.empty(0, "<f4")
    if store == "fp32":
        return np.ascontiguousarray(tensor, "<f4"), none
    if store == "fp16":
        with np.errstate(over="ignore"):
            codes = np.ascontiguousarray(tensor, "<f2")
        if not np.isfinite(codes).all():
            raise RuntimeFileError("has values beyond 65504, the most of fp16; store it as fp32")
        return codes, none
    codes, scales = as_int8(tensor)
    if (127 * scales.astype(np.float64) > np.finfo(np.float32).max).any():
        raise RuntimeFileError("has values that are too large for int8; store it as fp32")
    return codes, scales


def as_int8(tensor: Array) -> tuple[NDArray[np.int8], Array]:
    """Integers from -127 to 127, and for each filter the scale that they count."""
    rows = tensor.reshape(len(tensor), -1).astype(np.float64)
    scales = (np.abs(rows).max(axis=1) / 127).astype("<f4")
    divisors = np.where(scales > 0, scales, np.inf)[:, None]
    codes = np.clip(np.rint(rows / divisors), -127, 127).astype(np.int8)
    return codes.reshape(tensor.shape), scales


def _gaps(places: NDArray[np.intp]) -> NDArray[np.uint8]:
    zeros = np.diff(places, prepend=-1) - 1
    skips = zeros // 255
    gaps = np.full(int(skips.sum()) + len(zeros), 255, np.uint8)
    gaps[np.cumsum(skips + 1) - 1] = zeros % 255
    return gaps


def _places(stored: Stored, count: int, data: NDArray[np.uint8]) -> Any:
    """An index of the kept values in the flat tensor."""
    if stored.positions == "all":
        return slice(None)
    if stored.positions == "bitmap":
        bits = np.unpackbits(data)
        if bits[count:].any() or np.count_nonzero(bits) != stored.kept:
            raise RuntimeFileError(f"has a bitmap that does not keep {stored.kept} values")
        return bits[:count].view(np.bool_)
    is_value = data != 255
    places = (np.cumsum(data, dtype=np.int64) + np.cumsum(is_value, dtype=np.int64))[is_value] - 1
    if len(places) != stored.kept or (len(places) > 0 and places[-1] >= count):
        raise RuntimeFileError(f"has gaps that do not keep {stored.kept} of {count} values")
    return places
