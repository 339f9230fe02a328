"""Collects the operations of a `Table`, their constants, and how threads share them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prunus_runtime import native
from prunus_runtime.errors import GraphError
from prunus_runtime.layout import NOTHING, Value
from prunus_runtime.native import ENTRY, KINDS, OPERATION, Table

SHARE = 8000
"""Vectors of work that are worth a thread."""
MOST_PARTS = 64
"""Bits of the word in which threads mark the parts that they begin."""


class Builder:
    """A table in the making. `values` says where the activations lie, `arena` their size."""

    def __init__(self, isa: str, lanes: int, threads: int) -> None:
        self.isa, self.lanes = isa, lanes
        self.vector, self.most = native.lanes(isa), native.most_vectors(isa)
        self.threads = min(threads, MOST_PARTS)
        self.values: dict[str, Value] = {}
        self.arena = 0
        self._operations: list[tuple[Any, ...]] = []
        self._pools: dict[str, list[NDArray[Any]]] = {
            # Each begins with one unused element, so that none is ever empty.
            "ints": [np.zeros(1, np.int32)],
            "floats": [np.zeros(1, np.float32)],
            "entries": [np.zeros(1, ENTRY)],
        }
        self._sizes = dict.fromkeys(self._pools, 1)

    @property
    def along(self) -> bool:
        """Whether vectors run along the positions of a plane, not just across images."""
        return self.lanes < self.vector

    def parts(self, work: int) -> int:
        """How many threads an operation of so many vectors of work is worth."""
        return max(1, min(self.threads, work // SHARE))

    def add(self, pool: str, *arrays: NDArray[Any]) -> int:
        """Adds constants to `ints`, `floats` or `entries`; gives back where they begin."""
        begin = self._sizes[pool]
        self._pools[pool].extend(arrays)
        self._sizes[pool] += sum(len(array) for array in arrays)
        return begin

    def emit(
        self,
        kind: str,
        *,
        a: Value = NOTHING,
        b: Value = NOTHING,
        out: Value = NOTHING,
        items: int = 0,
        parts: int = 1,
        p: Sequence[int] = (),
        ints: Sequence[NDArray[np.int32]] = (),
        floats: Sequence[NDArray[np.float32]] = (),
        entries: NDArray[np.void] | None = None,
        bounds: tuple[float, float] = (-math.inf, math.inf),
    ) -> None:
        """Adds an operation. Its items are the channels, large ones in bands, if not said."""
        bands = 1
        if not items:
            value = a if kind == "store" else out
            row = -(-value.width * self.lanes // self.vector)
            parts = self.parts(2 * value.channels * value.height * row)
            bands = parts if value.height >= 2 * parts else 1
            items = value.channels * bands
        self._operations.append(
            (
                *(KINDS.index(kind), items, max(1, min(parts, items)), bands),
                *(astuple(a), astuple(b), astuple(out)),
                tuple(p) + (0,) * (8 - len(p)),
                self.add("ints", *ints),
                self.add("floats", *floats),
                self.add("entries", *([] if entries is None else [entries])),
                *bounds,
            )
        )

    def check_arena(self) -> None:
        """That offsets, which have 32 bits, reach all of it."""
        if self.arena >= 2**31 - 2 * self.vector:
            raise GraphError(
                f"the activations of {self.lanes} images take {self.arena * 4 / 2**30:.0f} GiB; "
                "the runtime's limit is 8"
            )

    def table(self, input_size: int, output_size: int) -> Table:
        """What was collected."""
        self.check_arena()
        # Poolings and copies that take every second element load what is between and behind.
        arena = self.arena + 2 * self.vector
        pools = [np.concatenate(self._pools[name]) for name in ("ints", "floats", "entries")]
        operations = np.array(self._operations, OPERATION)
        return Table(self.isa, self.lanes, arena, input_size, output_size, operations, *pools)
