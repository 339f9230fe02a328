"""The ways in which the native core can run on this machine, for tests."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from types import MappingProxyType
from unittest.mock import patch

import numpy as np

from prunus_runtime import Deployed, native
from prunus_runtime.graph import Graph

ISAS = [isa for isa in native.ISAS if native.available() and native.lanes(isa)]

BATCHES = (1, 2, 4, 7, 15, 16, 17, 128)
"""Batch sizes with whole and incomplete chunks, for chunks of every size."""


SMALL = {"builder.SHARE": 1, "tiled.TILE": 1, "tiled.CACHE": 64}
SMALL |= {"tiled.WORTH": 1, "tiled.WORTH_ACROSS": 1}
BUNDLED = dict.fromkeys(["tiled.FULL", "tiled.FULL_ACROSS"], dict.fromkeys(native.ISAS, -1))
BUNDLED |= dict.fromkeys(["tiled.FULL_PACKED", "tiled.FULL_PACKED_ACROSS"], -1)
OF_FILTERS = {"tiled.READ": -1e9}


def runs(isa: str, graph: Graph, x: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The output for the first n images, for each n of `BATCHES` and in each way to run them: by
    one thread, shared by three, and by two in bundles and with vectors of filters."""
    ways = (
        (1, nullcontext()),
        (3, everything_split()),
        (2, everything_split(BUNDLED)),
        (2, everything_split(OF_FILTERS)),
    )
    for threads, way in ways:
        network = Deployed(graph, threads, isa=isa)
        with way:
            for n in BATCHES:
                yield n, network(x[:n])


@contextmanager
def everything_split(lists: Mapping[str, object] = MappingProxyType({})) -> Iterator[None]:
    """Plans share even the smallest operation among threads, by positions if it has any, and pass
    over the output of convolutions as often as possible; with `lists`, every layer that can be is
    in bundles of filters (`BUNDLED`), or has vectors of them (`OF_FILTERS`), whatever it costs."""
    with ExitStack() as stack:
        for name, value in {**SMALL, **lists}.items():
            stack.enter_context(patch(f"prunus_runtime.plan.{name}", value))
        yield
