"""Arrays from and to untrusted bytes: `.npy` and JSON."""

from __future__ import annotations

import io
import json
import math
import re

import numpy as np

from prunus_runtime.checks import shown
from prunus_runtime.errors import InputError
from prunus_runtime.operation import Array

MAGIC = b"\x93NUMPY"
HEADER = re.compile(
    rb"\{\s*'descr':\s*'([<>|=]?[a-zA-Z?]\d*)',\s*'fortran_order':\s*(True|False),"
    rb"\s*'shape':\s*\(([-\d,\s]*)\),?\s*\}\s*"
)
"""What an `.npy` file of one kind of numbers begins with, after its magic, version and length."""
LENGTHS = {1: 2, 2: 4, 3: 4}
"""Bytes that say how long the header is, for each version of the format."""
MAX_HEADER = 10_000
"""Bytes, as in numpy."""


def from_npy(content: bytes) -> np.ndarray:
    """The array of an `.npy` file. Unlike `np.load` it allocates no more than the file holds, and
    does without Python's parser, which before 3.12 fails at times while other threads parse."""
    version = len(MAGIC)
    start = version + 2 + LENGTHS.get(int.from_bytes(content[version : version + 1]), 0)
    end = start + int.from_bytes(content[version + 2 : start], "little")
    header = HEADER.fullmatch(content[start:end]) if end - start <= MAX_HEADER else None
    if not content.startswith(MAGIC) or header is None:
        raise InputError("the input is no array in the .npy format, of one kind of numbers")
    descr, order, sizes = header.groups()
    try:
        kind = np.dtype(descr.decode())
        shape = tuple(int(size) for size in sizes.split(b",") if size.strip())
    except (TypeError, ValueError) as error:
        raise InputError(f"the input is no array in the .npy format: {shown(str(error))}") from None
    if kind.kind not in "fiu":
        raise InputError(f"the input is of {kind}; make it float32, as the network is")
    rest = content[end:]
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != len(rest):
        raise InputError(f"the input has shape {shown(shape)}, but {len(rest)} bytes of content")
    try:
        return np.frombuffer(rest, kind).reshape(shape, order="F" if order == b"True" else "C")
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
