"""Checks of single fields of an operation. Errors name the field and its value."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from prunus_runtime.errors import GraphError
from prunus_runtime.operation import Operation, Shape

MAX_SIZE = 2**20
"""Of height, width, the length of a sequence, and every number of an attribute."""
MAX_ELEMENTS = 2**28
"""Of a tensor, and of a value of one image with its padding: one GiB."""


def text(value: object, what: str) -> str:
    """A name that can be shown: printable, and of a length to read."""
    if not isinstance(value, str) or not value or len(value) > 1000 or not value.isprintable():
        raise GraphError(f"{what} is {shown(value)}, not a name of 1 to 1000 printable characters")
    return value


def integers(operation: Operation, name: str, count: int, least: int) -> tuple[int, ...]:
    """The attribute `name`: `count` integers of at least `least`."""
    value = operation.attributes[name]
    if (
        not isinstance(value, list | tuple)
        or len(value) != count
        or not all(type(item) is int and least <= item <= MAX_SIZE for item in value)
    ):
        wanted = f"{count} integers from {least} to {MAX_SIZE}"
        raise GraphError(f"`{name}` is {shown(value)}, not {wanted}")
    return tuple(value)


def integer(operation: Operation, name: str) -> int:
    """The attribute `name`: one positive integer."""
    value = operation.attributes[name]
    if type(value) is not int or not 1 <= value <= MAX_SIZE:
        raise GraphError(f"`{name}` is {shown(value)}, not an integer from 1 to {MAX_SIZE}")
    return value


def number(operation: Operation, name: str) -> float:
    """The attribute `name`: a number that float32 can hold."""
    value = operation.attributes[name]
    if type(value) not in (int, float) or not abs(value) <= 3.4e38:
        raise GraphError(f"`{name}` is {shown(value)}, not a finite number of float32")
    return float(value)


def check_keys(
    what: str, found: Collection[str], required: Collection[str], optional: Collection[str] = ()
) -> None:
    """That all `required` names are there, and none but these and the `optional` ones."""
    if missing := set(required) - set(found):
        raise GraphError(f"its {what} lack {', '.join(sorted(missing))}")
    if unknown := set(found) - set(required) - set(optional):
        raise GraphError(f"its {what} have an unknown {shown(min(unknown, key=str))}")


def tensor(operation: Operation, name: str, *expected: Shape) -> Shape:
    """The shape of the tensor `name`: one of those `expected`, if any are."""
    array = operation.tensors[name]
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        raise GraphError(f"`{name}` is not a numpy array of float32")
    if array.size > MAX_ELEMENTS:
        raise GraphError(f"`{name}` has {array.size} elements; the limit is {MAX_ELEMENTS}")
    if expected and array.shape not in expected:
        raise GraphError(f"`{name}` has shape {array.shape}, not {expected[0]}")
    return array.shape


def image(x: Shape) -> tuple[int, int, int]:
    """The shape of an input that must be an image."""
    if len(x) != 3:
        raise GraphError(f"its input has shape {x}, not (channels, height, width)")
    return x[0], x[1], x[2]


def sequence(x: Shape) -> tuple[int, int]:
    """The shape of an input that must be a sequence."""
    if len(x) != 2:
        raise GraphError(f"its input has shape {x}, not (channels, positions)")
    return x[0], x[1]


def flag(operation: Operation, name: str) -> bool:
    """The attribute `name`: true or false."""
    value = operation.attributes[name]
    if type(value) is not bool:
        raise GraphError(f"`{name}` is {shown(value)}, not true or false")
    return value


def size(shape: Shape, what: str) -> Shape:
    """A shape without the batch, not empty and not too large."""
    if len(shape) not in (1, 2, 3) or min(shape) < 1:
        raise GraphError(
            f"{what} would have shape {shown(shape)}; it must be (features,), (channels, "
            "positions) or (channels, height, width), with nothing empty"
        )
    if math.prod(shape) > MAX_ELEMENTS or max(shape[1:], default=0) > MAX_SIZE:
        raise GraphError(
            f"{what} would have shape {shown(shape)}; more than {MAX_ELEMENTS} elements, or more "
            f"than {MAX_SIZE} in height or width, are not supported"
        )
    return shape


def check_memory(needed: float, limit: float) -> None:
    """That `needed` bytes are not more than `limit`."""
    if needed > limit:
        raise GraphError(
            f"it takes {needed / 2**30:.2f} GiB of memory, and the limit is {limit / 2**30:.2f}; "
            "if you trust it, raise that: limits=Limits(memory=...), or --no-limits"
        )


def shown(value: Any) -> str:
    """`value` for a message, whatever it is and however long."""
    content = ascii(value) if not isinstance(value, int) or abs(value) < 2**64 else "a huge integer"
    return content if len(content) <= 80 else content[:77] + "..."
