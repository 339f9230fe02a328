"""Arrays from and to untrusted bytes: `.npy` and JSON."""

from __future__ import annotations

import io
import json
import math

import numpy as np

from prunus_runtime.checks import shown
from prunus_runtime.errors import InputError
from prunus_runtime.operation import Array


def from_npy(content: bytes) -> np.ndarray:
    """The array of an `.npy` file. Unlike `np.load` it allocates no more than the file holds."""
    source = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(source)
        if version == (1, 0):
            shape, is_fortran, kind = np.lib.format.read_array_header_1_0(source)
        else:
            shape, is_fortran, kind = np.lib.format.read_array_header_2_0(source)
    except Exception as error:  # numpy lets through whatever its parsers raise
        raise InputError(f"the input is no array in the .npy format: {shown(str(error))}") from None
    if kind.kind not in "fiu":
        raise InputError(f"the input is of {kind}; make it float32, as the network is")
    rest = content[source.tell() :]
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != len(rest):
        raise InputError(f"the input has shape {shown(shape)}, but {len(rest)} bytes of content")
    try:
        return np.frombuffer(rest, kind).reshape(shape, order="F" if is_fortran else "C")
    except ValueError as error:
        raise InputError(f"the input has shape {shown(shape)}: {error}") from None


def to_npy(array: Array) -> bytes:
    """The content of an `.npy` file."""
    target = io.BytesIO()
    np.lib.format.write_array(target, np.asarray(array), allow_pickle=False)
    return target.getvalue()


def from_json(content: bytes) -> Array:
    """The array of nested lists of numbers."""
    try:
        array = np.array(json.loads(content, parse_constant=_refuse))
    except (ValueError, RecursionError) as error:
        raise InputError(f"the input is no list of numbers in JSON: {shown(str(error))}") from None
    if array.dtype.kind not in "fiu":
        raise InputError("the input is no list of numbers in JSON, all rows of one length")
    with np.errstate(over="ignore"):
        result: Array = array.astype(np.float32)
    if not np.isfinite(result).all():
        raise InputError("the input has numbers that float32 cannot hold")
    return result


def to_json(array: Array) -> bytes:
    """Nested lists."""
    if not np.isfinite(array).all():
        raise InputError("the output is not finite, which JSON cannot say; send .npy instead")
    return json.dumps(array.tolist()).encode()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not finite")
