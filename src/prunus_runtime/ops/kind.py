"""What the other modules ask of a kind of operation, and the answers of most kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.checks import check_keys
from prunus_runtime.errors import GraphError
from prunus_runtime.operation import Array, Flags, Operation, Shape
from prunus_runtime.plan.builder import Builder, Step
from prunus_runtime.plan.layout import ArenaLayout

Indices = NDArray[np.intp]
Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class Channels:
    """What is known of a value's channels whatever the network's input is."""

    shape: Shape
    known: Flags
    """Whether a channel is the same for all inputs of the network."""
    zero: Flags
    """Whether it is known to be zero everywhere."""


class Kind(ABC):
    """A kind of operation. The docstring of each describes its attributes and tensors."""

    name: str
    inputs = 1
    """How many values it reads; -2 means two or more."""
    attributes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    optional_tensors: tuple[str, ...] = ()

    # Validity

    def output_shape(self, operation: Operation, inputs: Sequence[Shape]) -> Shape:
        """The shape of its output; `GraphError` if anything about the operation is wrong."""
        if len(inputs) < abs(self.inputs) or (self.inputs >= 0 and len(inputs) > self.inputs):
            wanted = f"{self.inputs}" if self.inputs >= 0 else f"{-self.inputs} or more"
            raise GraphError(f"it has {len(inputs)} inputs, not {wanted}")
        check_keys("attributes", operation.attributes, self.attributes_of(operation))
        check_keys("tensors", operation.tensors, self.tensors, self.optional_tensors)
        return self.shape(operation, inputs)

    def attributes_of(self, _operation: Operation, /) -> tuple[str, ...]:
        """The attributes that an operation must have."""
        return self.attributes

    @abstractmethod
    def shape(self, operation: Operation, inputs: Sequence[Shape], /) -> Shape:
        """The shape of the output; checks the values of attributes and the shapes of tensors."""

    # Computation

    @abstractmethod
    def run(self, operation: Operation, inputs: Sequence[Array], /) -> Array:
        """What it computes, in numpy: the truth that the native core is tested against."""

    def work(self, _operation: Operation, _inputs: Sequence[Shape], /) -> int:
        """Multiply-adds that take about as long as one element of the output."""
        return 16

    # Channels, for `prunus.deployment`, which removes those that do not matter

    pointwise = False
    """Whether it computes each element from the same element, for images as for features."""
    constant_operand: str | None = None
    """The tensor of `affine` that stands for one of its two operands, if that is constant."""

    def sources(self, _operation: Operation, shapes: Sequence[Shape], /) -> list[Indices]:
        """For each input: the channel of it that each channel of the output is made of, or -1."""
        return [np.arange(shapes[0][0])] * len(shapes)

    def known(self, operation: Operation, inputs: Sequence[Channels], /) -> Flags:
        """Which channels of the output are the same for all inputs of the network."""
        sources = self.sources(operation, [value.shape for value in inputs])
        pairs = zip(sources, inputs, strict=True)
        flags: Flags = np.logical_and.reduce([(s < 0) | value.known[s] for s, value in pairs])
        return flags

    def needs(self, operation: Operation, wanted: Flags, shapes: Sequence[Shape], /) -> list[Flags]:
        """For each input: the channels that the `wanted` channels of the output are made of."""
        needed = [np.zeros(shape[0], dtype=bool) for shape in shapes]
        for flags, sources in zip(needed, self.sources(operation, shapes), strict=True):
            used = sources[wanted]
            flags[used[used >= 0]] = True
        return needed

    def tied(
        self, operation: Operation, shapes: Sequence[Shape], /
    ) -> Iterator[tuple[int, str, int]]:
        """Channels that stay or go together: (channel of the output, value, channel of that)."""
        for name, sources in zip(operation.inputs, self.sources(operation, shapes), strict=True):
            for channel, source in enumerate(sources.tolist()):
                if source >= 0:
                    yield channel, name, source

    def narrowed(self, operation: Operation, _before: Flags, after: Flags, /) -> Operation:
        """The operation with only these channels of its first input and of its output."""
        return replace(
            operation,
            tensors={name: tensor[after] for name, tensor in operation.tensors.items()},
        )

    def is_identity(self, _operation: Operation, /) -> bool:
        """Whether its output is its input."""
        return False

    # Planning

    output_without_gaps = False
    """Whether what it writes must have no zeros between planes."""

    def joined(self, _operation: Operation, _layer: Step, _shapes: Shapes, /) -> Step | None:
        """The step of the layer before it with this operation included, if that is possible."""
        return None

    def takes_packed(self, _operation: Operation, _made: Operation, _output: Shape, /) -> bool:
        """Whether it can read its input as `made` quantized it, four channels packed into one."""
        return False

    def reserve(self, _layout: ArenaLayout, _step: Step, /) -> str | None:
        """Says what it needs of the places of what it reads and writes. The name of one more value
        that it needs while it works, if it does."""
        return None

    @abstractmethod
    def emit(self, builder: Builder, step: Step, /) -> None:
        """Adds its instructions."""


def all_tied(operation: Operation, channels: int) -> Iterator[tuple[int, str, int]]:
    """For `Kind.tied`: all channels of the output stay or go together."""
    for channel in range(1, channels):
        yield 0, operation.output, channel


def with_attributes(operation: Operation, **attributes: Any) -> Operation:
    """The operation with some other attributes."""
    return replace(operation, attributes={**operation.attributes, **attributes})


def over_channels(tensor: Array, x: Array) -> Array:
    """One number for each channel, in a shape that fits a batch `x`."""
    return tensor.reshape(-1, *[1] * (x.ndim - 2))
