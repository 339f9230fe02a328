"""How PyTorch spells the operations of a graph: one small function for each, in both directions.

`OPERATORS` translates ATen operators. A function gets the walk, which writes operations down, and
the operator's arguments by name. Those that are tensors are constants of the model; those that are
`Value`s come from the input. `compute` does in PyTorch what an operation does: with tensors, and
also with the proxies of `torch.fx`, by which `module.py` records it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from prunus.deployment.operators import (  # noqa: F401 (fill the tables)
    attention,
    elements,
    layers,
    per_token,
    sequences,
    shaping,
    views,
)
from prunus.deployment.operators.layers import avg_pool_tensors
from prunus.deployment.operators.per_token import PerToken
from prunus.deployment.operators.walk import (
    COMPUTE,
    ON_SCORES,
    OPERATORS,
    Scores,
    Tensors,
    Unsupported,
    Value,
)
from prunus_runtime.graph import Array, Operation

__all__ = [
    "ON_SCORES",
    "OPERATORS",
    "PerToken",
    "Scores",
    "Unsupported",
    "Value",
    "array_of",
    "compute",
    "evaluate",
    "tensors_of",
]


def compute(operation: Operation, inputs: Sequence[Any], tensors: Tensors) -> Any:
    """The value of `operation` for a batch, with the tensors that `tensors_of` gives."""
    return COMPUTE[operation.kind](operation.attributes, tensors, *inputs)


def tensors_of(operation: Operation, shape: Sequence[int] = ()) -> dict[str, Tensor]:
    """The tensors with which an operation computes on a first input of `shape`."""
    if operation.kind == "avg_pool":
        return avg_pool_tensors(operation.attributes, shape)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in operation.tensors.items()}
    if operation.kind in ("affine", "norm"):
        return {name: t.reshape(-1, *[1] * (len(shape) - 1)) for name, t in tensors.items()}
    return tensors


def array_of(tensor: Tensor) -> Array:
    """A tensor as an operation holds it: float32, in memory of its own."""
    array: Array = tensor.detach().to(torch.float32).contiguous().numpy().copy()
    return array


def evaluate(operation: Operation, *inputs: Tensor) -> Tensor:
    """The value of `operation` for batches of tensors, in their precision."""
    tensors = tensors_of(operation, inputs[0].shape[1:])
    result: Tensor = compute(operation, inputs, {k: t.to(inputs[0]) for k, t in tensors.items()})
    return result
