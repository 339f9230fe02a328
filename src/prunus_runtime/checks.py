"""Checks of single fields of an operation. What they refuse they name, with its value."""

from __future__ import annotations

import math
from typing import Any

from prunus_runtime.errors import GraphError
from prunus_runtime.graph import Operation, Shape

MAX_SIZE = 2**20
"""Of height, width, and every number of an attribute."""
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


def size(shape: Shape, what: str) -> Shape:
    """A shape without the batch that is worth its memory."""
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise GraphError(
            f"{what} would have shape {shape}; it must be (features,) or "
            "(channels, height, width), with nothing empty"
        )
    if math.prod(shape) > MAX_ELEMENTS or max(shape[1:], default=0) > MAX_SIZE:
        raise GraphError(
            f"{what} would have shape {shape}; more than {MAX_ELEMENTS} elements, or more than "
            f"{MAX_SIZE} in height or width, are not supported"
        )
    return shape


def shown(value: Any) -> str:
    """`value` for a message, whatever it is and however long."""
    content = ascii(value) if not isinstance(value, int) or abs(value) < 2**64 else "a huge integer"
    return content if len(content) <= 80 else content[:77] + "..."
