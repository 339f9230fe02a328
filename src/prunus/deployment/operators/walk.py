"""What the files of operators share: their tables, arguments, and padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.nn.functional as F
from torch import Tensor

from prunus.deployment.axes import Axes

Arguments = dict[str, Any]
Attributes = Mapping[str, Any]
Tensors = Mapping[str, Any]
Function = TypeVar("Function", bound=Callable[..., Any])

OPERATORS: dict[str, Callable[[Any, Arguments], Any]] = {}
"""By an ATen operator's name without overloads: what writes it, with its arguments, to the walk."""
ON_SCORES: dict[str, Callable[[Any, Arguments], Any]] = {}
"""The same for operators of which an operand is the scores of an attention."""
COMPUTE: dict[str, Callable[..., Any]] = {}
"""By kind of operation: what it computes in PyTorch. attributes, tensors, *inputs -> output."""


def register(table: dict[str, Any], *names: str) -> Callable[[Function], Function]:
    """Makes a function the one that `table` has for these names."""

    def registered(function: Function) -> Function:
        table.update(dict.fromkeys(names, function))
        return function

    return registered


class Value(str):
    """The name of a value that depends on the network's input.

    `axes` says how PyTorch's tensor reads it; None stands for the standard, (batch, channels,
    ...positions).
    """

    __slots__ = ("axes",)
    axes: Axes | None

    def __new__(cls, name: str = "", axes: Axes | None = None) -> Value:
        value = super().__new__(cls, name)
        value.axes = axes
        return value


@dataclass(frozen=True)
class Scores:
    """How much the queries of an attention that is written out look at its keys, so far: `finished`
    after the softmax. `hidden` has a flag for each token: whether keys of that token are hidden."""

    query: Value
    key: Value
    heads: int
    scale: float = 1.0
    causal: bool = False
    hidden: Tensor | None = None
    finished: bool = False


class Unsupported(Exception):  # noqa: N818 (its text continues a sentence)
    """A known operator, used in a way that is not supported."""


def view_of(x: Any) -> Value:
    """An operand that depends on the input, in any order of dimensions."""
    if not isinstance(x, Value):
        raise Unsupported("where its first operand is a constant")
    return x


def value_of(x: Any) -> Value:
    """An operand that depends on the input, as (batch, channels, ...positions)."""
    value = view_of(x)
    if value.axes is not None:
        raise Unsupported("where dimensions were reordered before")
    return value


def constant_of(x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise Unsupported("with weights that depend on the input")
    return x


def pair_of(value: Any) -> list[int]:
    sizes = [value] if isinstance(value, int) else list(value)
    return sizes * 2 if len(sizes) == 1 else sizes


def is_symmetric(padding: Sequence[int]) -> bool:
    """Whether a layer of PyTorch can have this padding [top, left, bottom, right]."""
    return list(padding[:2]) == list(padding[2:])


def padded(x: Any, padding: Sequence[int], value: float = 0.0) -> Any:
    """`x` with [top, left, bottom, right] of `value` around it."""
    top, left, bottom, right = padding
    return F.pad(x, [left, right, top, bottom], value=value) if any(padding) else x
