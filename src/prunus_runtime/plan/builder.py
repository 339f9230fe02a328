"""Collects the instructions of a `Program`, their constants, and how threads share them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prunus_runtime import native
from prunus_runtime.checks import check_memory
from prunus_runtime.errors import GraphError
from prunus_runtime.native.interface import (
    BUNDLED,
    FILTER_VECTORS,
    MOST_PARAMETERS,
    NOWHERE,
    STRIP,
    CopyParameters,
    Instruction,
    Kernel,
    Parameters,
    Place,
)
from prunus_runtime.operation import Operation

SHARE = 8000
"""Vectors of work that are worth a thread."""
MOST_PARTS = 64
"""Bits of the word in which threads mark the parts that they begin."""
EVERYTHING = CopyParameters()
EMPTY: Mapping[str, Operation] = {}


@dataclass(frozen=True)
class Step:
    """One operation of the graph, and what was fused into it.

    A layer without weights has no inputs: its output does not depend on them. To the result of a
    layer, `residual` is added, if there is one; then it is clamped to `low` and `high`.
    """

    operation: Operation
    inputs: tuple[str, ...]
    output: str
    residual: str | None = None
    low: float = -math.inf
    high: float = math.inf

    @property
    def reads(self) -> tuple[str, ...]:
        return self.inputs if self.residual is None else (*self.inputs, self.residual)

    @property
    def is_bounded(self) -> bool:
        return self.low > -math.inf or self.high < math.inf


class Builder:
    """A program in the making. `places` says where values lie, `arena` how large all are; `memory`
    is how many bytes the constants of the program may take. `packed` are the values of which four
    channels are packed into one, and the operations that do that."""

    def __init__(
        self,
        isa: str,
        lanes: int,
        threads: int,
        places: dict[str, Place],
        arena: int,
        memory: float,
        packed: Mapping[str, Operation] = EMPTY,
    ) -> None:
        self.isa, self.lanes = isa, lanes
        self.vector, self.most = native.lanes(isa), native.most_vectors(isa)
        self.bundle, self.filters = self.bundles
        self.threads = min(threads, MOST_PARTS)
        self.places, self.arena, self.memory, self.packed = places, arena, memory, packed
        self._instructions: list[Instruction] = []
        self._pools: dict[str, list[NDArray[Any]]] = {
            # Each begins with one unused element, so that none is ever empty.
            "ints": [np.zeros(1, np.int32)],
            "floats": [np.zeros(1, np.float32)],
            "entries": [np.zeros(1, native.ENTRY)],
        }
        self._sizes = dict.fromkeys(self._pools, 1)
        self._kept: list[NDArray[np.float32]] = []

    @property
    def bundles(self) -> tuple[int, int]:
        """Filters of a list, where vectors are of positions, and where they are of filters."""
        return self.most // BUNDLED, FILTER_VECTORS * self.vector

    @property
    def along(self) -> bool:
        """Whether vectors run along the positions of a plane, not just across images."""
        return self.lanes < self.vector

    def parts(self, work: int) -> int:
        """How many threads an instruction of so many vectors of work is worth."""
        return max(1, min(self.threads, work // SHARE))

    def add(self, pool: str, *arrays: NDArray[Any]) -> int:
        """Adds constants to `ints`, `floats` or `entries`; returns where they begin."""
        begin = self._sizes[pool]
        self._pools[pool].extend(arrays)
        self._sizes[pool] += sum(len(array) for array in arrays)
        check_memory(4 * (sum(self._sizes.values()) + self._sizes["entries"]), self.memory)
        return begin

    def emit(
        self,
        kernel: Kernel,
        parameters: Parameters | None = None,
        *,
        a: Place = NOWHERE,
        b: Place = NOWHERE,
        out: Place = NOWHERE,
        items: int = 0,
        parts: int = 1,
        option: int = 0,
        ints: Sequence[NDArray[np.int32]] = (),
        floats: Sequence[NDArray[np.float32]] = (),
        entries: Sequence[NDArray[np.void]] = (),
        bounds: tuple[float, float] = (-math.inf, math.inf),
        number: float = 0.0,
    ) -> None:
        """Adds an instruction. Without `items`, these are the channels, large ones in bands."""
        bands = 1
        if not items:
            place = a if out is NOWHERE else out
            row = -(-place.width * self.lanes // self.vector)
            parts = self.parts(2 * place.channels * place.height * row)
            bands = parts if place.height >= 2 * parts else 1
            items = place.channels * bands
        values = parameters or ()
        self._instructions.append(
            Instruction(
                kernel=kernel,
                items=items,
                parts=max(1, min(parts, items)),
                bands=bands,
                a=a,
                b=b,
                out=out,
                parameters=(*values, *[0] * (MOST_PARAMETERS - len(values))),
                option=option,
                ints=self.add("ints", *ints),
                floats=self.add("floats", *floats),
                entries=self.add("entries", *entries),
                low=bounds[0],
                high=bounds[1],
                number=number,
            )
        )

    def emit_unary(
        self, kernel: Kernel, step: Step, parameters: Parameters | None = None, **options: Any
    ) -> None:
        """Adds the one instruction of a step with one input."""
        a, out = self.places[step.inputs[0]], self.places[step.output]
        self.emit(kernel, parameters, a=a, out=out, **options)

    def copy(self, a: Place, out: Place, how: CopyParameters = EVERYTHING) -> None:
        """Adds a copy of `a`; what is outside of `a` is zero."""
        self.emit(Kernel.COPY, how, a=a, out=out)

    def address(self, array: NDArray[np.float32]) -> int:
        """Where a constant lies that is too large to be copied into each program."""
        self._kept.append(np.ascontiguousarray(array))
        return int(self._kept[-1].ctypes.data)

    def strips(self, place: Place) -> dict[str, Any]:
        """Items and parts of an instruction that takes strips of rows, each with all channels."""
        items = place.height * -(-place.width * self.lanes // (STRIP * self.vector))
        work = 8 * place.channels * place.height * -(-place.width * self.lanes // self.vector)
        return {"items": items, "parts": self.parts(work)}

    def program(self) -> native.Program:
        """What was collected."""
        check_arena(self.arena, self.lanes, self.vector)
        # Poolings and copies that take every second element load what is between and behind.
        arena = self.arena + 2 * self.vector
        pools = {name: np.concatenate(arrays) for name, arrays in self._pools.items()}
        instructions = np.array(self._instructions, native.INSTRUCTION)
        kept = tuple(self._kept)
        return native.Program(self.isa, self.lanes, arena, instructions, **pools, kept=kept)


def check_arena(arena: int, lanes: int, vector: int) -> None:
    """That offsets, which have 32 bits, reach all of it."""
    if arena >= 2**31 - 2 * vector:
        raise GraphError(
            f"the activations of {lanes} images take {arena * 4 / 2**30:.0f} GiB; "
            "the runtime's limit is 8"
        )
