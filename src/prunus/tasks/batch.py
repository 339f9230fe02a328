"""Batches of any structure: a tensor, a tuple (or list) of tensors, or a dict of tensors.

The samples are on the first axis of every tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

LABELS = "labels"
"""The entry of a dict that is for the loss, not for the model."""


def model_inputs(batch: Any) -> Any:
    """The part of a batch that goes into the model: the tensor itself, the first element of a
    tuple, or everything in a dict except its `labels`."""
    if isinstance(batch, Mapping):
        return {name: value for name, value in batch.items() if name != LABELS}
    return batch[0] if isinstance(batch, tuple | list) else batch


def call(model: nn.Module | Callable[..., Any], inputs: Any) -> Any:
    """The output for `inputs`: a tuple as positional arguments, a dict as keywords."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple | list) else model(inputs)


def tensors(batch: Any) -> Iterator[Tensor]:
    """All tensors in a batch; anything else in it (a text, a number) is left out."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors(value)
    elif isinstance(batch, tuple | list):
        for value in batch:
            yield from tensors(value)


def map_tensors(function: Callable[[Tensor], Any], batch: Any) -> Any:
    """The same structure with `function` applied to each tensor."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {name: map_tensors(function, value) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        return tuple(map_tensors(function, value) for value in batch)
    return batch


def count_samples(batch: Any) -> int:
    """The number of samples in a batch."""
    return next((len(tensor) for tensor in tensors(batch)), 0)


def split_batch(batch: Any, parts: int) -> list[Any]:
    """The batch in at most `parts` parts of equal size; the last may be smaller."""
    if parts == 1:
        return [batch]
    size = -(-count_samples(batch) // parts)  # as `Tensor.chunk` cuts
    starts = range(0, count_samples(batch), max(size, 1))
    return [map_tensors(lambda t, at=at: t[at : at + size], batch) for at in starts]  # type: ignore[misc]
