"""The straight-through estimator: a gradient for what has none."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor


def straight_through(value: Tensor, to: Tensor) -> Tensor:
    """`value` in the forward pass, exactly; in the backward pass its gradient goes to `to`."""
    return cast(Tensor, _StraightThrough.apply(value, to))  # type: ignore[no-untyped-call]


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, value: Tensor, to: Tensor) -> Tensor:  # noqa: ARG004
        return value.view_as(value)

    @staticmethod
    def backward(_: Any, g: Tensor) -> tuple[None, Tensor]:
        return None, g
