"""From which density on a layer is faster in bundles of filters than as lists of kept weights.

The planner's constants come from here: `FULL` and `FULL_ACROSS` (`prunus_runtime/plan/tiled.py`),
for vectors along a plane and across images; `MATRIX` (`prunus_runtime/ops/layers.py`), for a linear
layer of one image. Layers of ConvNets and transformers with random masks, each at several densities
and both ways in turn. A time is the least processor time of one thread, which a busy machine
disturbs little.

Run `python benchmarks/crossover.py --out results/crossover.json`; about two minutes.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import thread_time
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from prunus.files import write_atomically
from prunus.tables import text_table
from prunus_runtime.executor import Executor
from prunus_runtime.graph import Graph, Operation
from prunus_runtime.native import ISAS, lanes
from prunus_runtime.ops.layers import PIXELWISE

DENSITIES = (0.2, 0.35, 0.5, 0.65, 0.8, 1.0)
DENSITIES_SINGLE = (0.05, 0.1, 0.15, 0.2, 0.35, 1.0)
TURNS, SECONDS = 5, 0.01
"""Turns of each way, and seconds of a turn."""


class Layer(NamedTuple):
    """A convolution, 1x1 over the tokens of a sequence, or a linear layer (of no size)."""

    channels: int
    filters: int
    size: tuple[int, ...]
    kernel: int = 1
    stride: int = 1

    def __str__(self) -> str:
        step = f" by {self.stride}" if self.stride > 1 else ""
        how = f"{self.kernel}x{self.kernel}{step} on {'x'.join(map(str, self.size))}"
        return f"{self.channels}-{self.filters}" + (f", {how}" if self.size else "")

    def graph(self, density: float) -> Graph:
        random = np.random.default_rng(0)
        taps = (self.kernel, self.kernel) if self.size else ()
        shape = (self.filters, self.channels, *taps)
        weight = random.standard_normal(shape) * (random.random(shape) < density)
        tensors = {"weight": weight.astype(np.float32), "bias": np.zeros(self.filters, np.float32)}
        window = {"stride": [self.stride] * 2, "padding": [self.kernel // 2] * 4}
        how = {**PIXELWISE, **window} if self.size else {}
        operation = Operation("conv" if self.size else "linear", ("x",), "y", how, tensors)
        return Graph("x", (self.channels, *self.size), (operation,), "y").check()


LAYERS = (
    Layer(3, 64, (32, 32), 3),
    Layer(64, 64, (32, 32), 3),
    Layer(64, 128, (32, 32), 3, 2),
    Layer(128, 128, (16, 16), 3),
    Layer(256, 256, (8, 8), 3),
    Layer(512, 512, (4, 4), 3),
    Layer(256, 256, (1, 64)),
    Layer(256, 1024, (1, 64)),
    Layer(512, 512, ()),
)


@contextmanager
def forced(way: str, always: bool) -> Iterator[None]:
    """Plans with bundles, or the whole matrix, always or never; and never with vectors of
    filters."""
    constants = {"along": "plan.tiled.FULL", "across": "plan.tiled.FULL_ACROSS"}
    name = f"prunus_runtime.{constants.get(way, 'ops.layers.MATRIX')}"
    with (
        patch(name, dict.fromkeys(ISAS, -1 if always else 2)),
        patch("prunus_runtime.plan.tiled.READ", np.inf),
    ):
        yield


def ratio(layer: Layer, way: str, batch: int, isa: str, density: float) -> float:
    """How many times as long lists take as bundles."""
    graph = layer.graph(density)
    x = np.random.default_rng(1).standard_normal((batch, *graph.input_shape)).astype(np.float32)
    runs: dict[bool, Callable[[], object]] = {}
    for always in (False, True):
        with forced(way, always):
            executor = Executor(graph, 1, isa)
            executor(x)
        runs[always] = lambda executor=executor: executor(x)
    best = dict.fromkeys(runs, np.inf)
    for _ in range(TURNS):
        for always, run in runs.items():
            run()
            end = thread_time() + SECONDS
            while (start := thread_time()) < end:
                run()
                best[always] = min(best[always], thread_time() - start)
    return best[False] / best[True]


def crossover(densities: Sequence[float], ratios: Sequence[float]) -> float:
    """The density from which on the ratio is above 1: the last one where it passes."""
    points = list(zip(densities, ratios, strict=True))
    for (low, before), (high, after) in reversed(list(pairwise(points))):
        if before < 1 <= after:
            return low + (high - low) * (1 - before) / (after - before)
    return densities[0] if ratios[0] >= 1 else 1.0


def measure(isa: str) -> list[dict]:
    """One row for each layer, and each way to compute it."""
    rows = []
    for layer in LAYERS:
        positions = int(np.prod(layer.size))
        batches = {"across": lanes(isa), "along" if positions > 1 else "single": 1}
        for way, batch in batches.items():
            densities = DENSITIES_SINGLE if way == "single" else DENSITIES
            ratios = [ratio(layer, way, batch, isa, density) for density in densities]
            row = {"isa": isa, "layer": str(layer), "way": way, "batch": batch}
            found = {"densities": densities, "ratios": ratios}
            rows.append({**row, **found, "crossover": crossover(densities, ratios)})
            print(f"{isa}, {layer}, {way}: {rows[-1]['crossover']:.2f}", flush=True)
    return rows


def medians(rows: list[dict]) -> list[dict]:
    """Over all layers: the crossover, and how much bundles gain without zeros."""
    found = []
    for isa, way in dict.fromkeys((row["isa"], row["way"]) for row in rows):
        of = [row for row in rows if (row["isa"], row["way"]) == (isa, way)]
        found.append(
            {
                "isa": isa,
                "way": way,
                "layers": len(of),
                "crossover": median(row["crossover"] for row in of),
                "gain": median(row["ratios"][-1] for row in of),
            }
        )
    return found


def table(found: list[dict]) -> str:
    lines = [
        [f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()] for row in found
    ]
    return text_table(list(found[0]), lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    here = [isa for isa in ISAS if lanes(isa)]
    parser.add_argument("--isas", nargs="*", default=here, choices=here)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    rows = [row for isa in options.isas for row in measure(isa)]
    found = medians(rows)
    print(table(found))
    if options.out:
        result = {"load": os.getloadavg()[0], "medians": found, "rows": rows}
        write_atomically(options.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
