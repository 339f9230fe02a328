"""What the files of operators share: the walk that they write to, arguments, and padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch.nn.functional as F
from torch import Tensor

from prunus_runtime.graph import Operation, Shape


class Value(str):
    """The name of a value that depends on the network's input."""

    __slots__ = ()


class Unsupported(Exception):  # noqa: N818 (its text continues a sentence)
    """A known operator, used in a way that is not supported."""


class Walk(Protocol):
    """What the functions need of the walk over the exported program."""

    shapes: dict[str, Shape]
    operations: dict[str, Operation]

    def add(
        self,
        kind: str,
        /,
        *inputs: Value,
        shape: Sequence[int] | None = None,
        tensors: Mapping[str, Tensor | None] | None = None,
        **attributes: Any,
    ) -> Value: ...

    def again(self, operation: Operation, shape: Shape, **changes: Any) -> Value: ...

    def node_shape(self) -> Shape: ...


Arguments = dict[str, Any]
Translate = Callable[[Walk, Arguments], Any]
"""Writes an ATen operator, with its arguments by name, to the walk."""
Attributes = Mapping[str, Any]
Tensors = Mapping[str, Any]
Compute = Callable[..., Any]
"""What a kind of operation computes in PyTorch: attributes, tensors, *inputs -> output."""


def value_of(x: Any) -> Value:
    if not isinstance(x, Value):
        raise Unsupported("where its first operand is a constant")
    return x


def constant_of(x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise Unsupported("with weights that depend on the input")
    return x


def pair_of(value: Any) -> list[int]:
    sizes = [value] if isinstance(value, int) else list(value)
    return sizes * 2 if len(sizes) == 1 else sizes


def is_symmetric(padding: Sequence[int]) -> bool:
    """Whether a layer of PyTorch can have this [top, left, bottom, right]."""
    return list(padding[:2]) == list(padding[2:])


def padded(x: Any, padding: Sequence[int], value: float = 0.0) -> Any:
    """`x` with [top, left, bottom, right] of `value` around it."""
    top, left, bottom, right = padding
    return F.pad(x, [left, right, top, bottom], value=value) if any(padding) else x
