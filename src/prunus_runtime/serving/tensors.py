"""The requests and answers of the Open Inference Protocol, as JSON and with binary tensors.

A binary tensor stands after the JSON, whose length a header of the request gives; the tensor's own
entry has `binary_data_size` in its `parameters` instead of `data`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from prunus_runtime.checks import shown
from prunus_runtime.errors import InputError
from prunus_runtime.operation import Array, Shape

INPUT, OUTPUT = "input", "output"
"""What the tensors of every network are called."""
TYPES: dict[str, np.dtype[Any]] = {
    "FP32": np.dtype("<f4"),
    "UINT8": np.dtype("u1"),
    "INT64": np.dtype("<i8"),
}
"""What the protocol calls the types that inputs can have."""
HEADER_LENGTH = "Inference-Header-Content-Length"
"""The header that says how many bytes of JSON there are before the binary tensors."""


@dataclass(frozen=True)
class Request:
    """What a caller asks: an input, and how the answer shall look."""

    x: np.ndarray
    id: str | None = None
    wants_binary: bool = False


def read_request(content: bytes, header_length: str | None = None) -> Request:
    """The request in a body; `InputError` if it is none."""
    length = len(content)
    if header_length is not None:
        if not (header_length.isascii() and header_length.isdigit()):
            raise InputError(f"{HEADER_LENGTH} is {shown(header_length)}, not a number of bytes")
        length = int(header_length[:12])
        if length > len(content):
            raise InputError(f"{HEADER_LENGTH} is {length}, but the body has {len(content)} bytes")
    try:
        entry = json.loads(content[:length], parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the request is no JSON: {shown(str(error))}") from None
    match entry:
        case {"inputs": [dict(tensor)]}:
            pass
        case _:
            raise InputError(f"a request has `inputs`: a list of one tensor, called {INPUT!r}")
    name = entry.get("id")
    if name is not None and not isinstance(name, str):
        raise InputError(f"`id` is {shown(name)}, not a text")
    x = _read_tensor(tensor, content[length:])
    return Request(x, name, _wants_binary(entry))


def write_answer(y: Array, model: str, request: Request) -> tuple[bytes, int | None]:
    """The body of the answer; if it has a binary tensor, also how many bytes of JSON it has."""
    tensor: dict[str, Any] = {"name": OUTPUT, "datatype": "FP32", "shape": list(y.shape)}
    entry: dict[str, Any] = {"model_name": model, "outputs": [tensor]}
    if request.id is not None:
        entry["id"] = request.id
    if request.wants_binary:
        content = np.ascontiguousarray(y, "<f4").tobytes()
        tensor["parameters"] = {"binary_data_size": len(content)}
        head = json.dumps(entry).encode()
        return head + content, len(head)
    if not np.isfinite(y).all():
        raise InputError("the output is not finite, which JSON cannot say; ask for binary tensors")
    tensor["data"] = y.ravel().tolist()
    return json.dumps(entry).encode(), None


def described(name: str, input_shape: Shape, output_shape: Shape) -> dict[str, Any]:
    """The metadata of a model."""
    return {
        "name": name,
        "versions": ["1"],
        "platform": "prunus_runtime",
        "inputs": [{"name": INPUT, "datatype": "FP32", "shape": [-1, *input_shape]}],
        "outputs": [{"name": OUTPUT, "datatype": "FP32", "shape": [-1, *output_shape]}],
    }


def _read_tensor(tensor: dict[str, Any], binary: bytes) -> np.ndarray:
    name, shape, kind = (tensor.get(key) for key in ("name", "shape", "datatype"))
    if name != INPUT:
        raise InputError(f"the network has no input {shown(name)}: its input is {INPUT!r}")
    if not isinstance(kind, str) or kind not in TYPES:
        raise InputError(f"`datatype` is {shown(kind)}, not one of {', '.join(TYPES)}")
    if (
        not isinstance(shape, list)
        or not 1 <= len(shape) <= 8
        or not all(type(size) is int and 0 <= size < 2**31 for size in shape)
    ):
        raise InputError(f"`shape` is {shown(shape)}, not a list of sizes")
    data = tensor.get("data")
    if data is None:
        parameters = tensor.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        wanted = math.prod(shape) * TYPES[kind].itemsize
        if not size == len(binary) == wanted:
            raise InputError(
                f"{kind} of shape {shown(shape)} are {wanted} bytes, but `binary_data_size` is "
                f"{shown(size)}, and {len(binary)} bytes follow the JSON"
            )
        return np.frombuffer(binary, TYPES[kind]).reshape(tuple(shape))
    return _from_lists(data, kind, shape)


def _from_lists(data: object, kind: str, shape: list[int]) -> np.ndarray:
    """The array of a list of numbers, flat or nested."""
    try:
        array = np.array(data)
    except (ValueError, OverflowError):
        array = np.array(None)
    if array.dtype.kind not in "fiu" and array.size:
        raise InputError("`data` is no list of numbers, all rows of one length")
    if array.size != math.prod(shape):
        raise InputError(f"`data` has {array.size} numbers, and `shape` is {shown(shape)}")
    with np.errstate(all="ignore"):
        x = array.astype(TYPES[kind])
    if not np.isfinite(x).all() or (kind != "FP32" and (x != array).any()):
        raise InputError(f"`data` has numbers that {kind} cannot hold")
    return x.reshape(tuple(shape))


def _wants_binary(entry: dict[str, Any]) -> bool:
    """Whether the output shall be binary: the request says so for all outputs, or for this one."""
    match entry.get("outputs"):
        case [{"name": name, **rest}]:
            if name != OUTPUT:
                raise InputError(
                    f"the network has no output {shown(name)}: its output is {OUTPUT!r}"
                )
            match rest.get("parameters"):
                case {"classification": _}:
                    raise InputError("outputs as classes are not served: ask for the numbers")
                case {"binary_data": bool(wanted)}:
                    return wanted
        case None | []:
            pass
        case other:
            raise InputError(f"`outputs` is {shown(other)}, not a list of {OUTPUT!r} alone")
    match entry.get("parameters"):
        case {"binary_data_output": bool(wanted)}:
            return wanted
    return False


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not finite")
