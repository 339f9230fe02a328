"""How much faster a deployed network is than the dense one; and what budget makes it that fast."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from prunus.deployment.capture import as_input, capture, plain_copy
from prunus.deployment.deployed import Deployed
from prunus.deployment.onnx import encode_onnx, has_onnx, session
from prunus.deployment.timing import medians, torch_threads
from prunus.errors import DeployError, SettingError
from prunus.schema import Schema
from prunus.selection import Selection
from prunus_runtime.graph import Graph, Operation

DENSITIES = (1.0, 0.3, 0.1, 0.03, 0.005)
"""Of the random masks that a cost model is calibrated with."""
_DIGITS = 4
"""Of a budget that stands for a speed-up."""
_DENSE = "dense"


class DenseNetwork:
    """The dense network as fast as others run it: in ONNX Runtime if that is installed, otherwise
    in PyTorch. `engine` says which."""

    def __init__(self, model: nn.Module, example_input: Tensor, threads: int) -> None:
        plain = plain_copy(model)
        self.threads = threads
        self.engine, self._run = "PyTorch", _in_torch(plain)
        if has_onnx():
            self.engine = "ONNX Runtime"
            self._run = session(encode_onnx(plain, example_input), threads)

    def __call__(self, x: Any) -> Any:
        return self._run(x)


def _in_torch(plain: nn.Module) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        with torch.inference_mode():
            return plain(torch.from_numpy(x))

    return run


def times(
    dense: DenseNetwork, networks: Mapping[str, Deployed], batch: Tensor, seconds: float
) -> tuple[float, dict[str, float]]:
    """Median seconds for a batch, of the dense network and of deployed ones, measured in turns."""
    x = as_input(batch).contiguous().numpy()
    runs: dict[str, Callable[[Any], Any]] = {_DENSE: dense, **networks}
    with torch_threads(dense.threads):
        found = medians({name: partial(run, x) for name, run in runs.items()}, seconds)
    return found.pop(_DENSE), found


class CostModel(Schema):
    """How long a network takes in the runtime, by the multiply-adds that it keeps.

    Measured with random masks, and interpolated: a learned mask of as many multiply-adds takes
    about as long.
    """

    version: Literal[1] = 1
    batch: int
    threads: int
    engine: str
    """What ran the dense network."""
    dense_seconds: float
    """Of the dense network, for a batch."""
    points: tuple[tuple[float, float], ...]
    """Kept fraction of the multiply-adds of the selected layers, and seconds; fewest first."""
    processor: str = ""
    created: str = ""

    def speedup(self, macs: float) -> float:
        """How many times as fast as the dense network one with so many multiply-adds is."""
        kept, seconds = self._curve
        return self.dense_seconds / float(np.interp(macs, kept, seconds))

    def macs_for(self, speedup: float) -> float:
        """The multiply-adds to keep for a speed-up; one that cannot be had is a `SettingError`."""
        kept, seconds = self._curve
        against = f"the dense network in {self.engine} (batch of {self.batch})"
        largest, smallest = (self.dense_seconds / seconds[i] for i in (0, -1))
        if not 0 < speedup <= largest:
            raise SettingError(
                f"a speed-up of {speedup:g} against {against} cannot be had here: with "
                f"{100 * kept[0]:g} % of the multiply-adds it is {largest:.1f}. Ask for "
                f"{math.floor(10 * largest) / 10:g} at most, or for other batches (--batch)"
            )
        if speedup <= smallest:
            raise SettingError(
                f"a speed-up of {speedup:g} against {against} needs no pruning: with all its "
                f"weights the deployed network has {smallest:.2f} already"
            )
        macs = float(np.interp(self.dense_seconds / speedup, seconds, kept))
        return float(f"{macs:.{_DIGITS}g}")

    @property
    def _curve(self) -> tuple[list[float], list[float]]:
        """Multiply-adds and seconds, made so that more multiply-adds never take less time."""
        kept, seconds = zip(*sorted(self.points), strict=True)
        return list(kept), list(accumulate(seconds, max))


def calibrate(
    model: nn.Module, selection: Selection, batch: Tensor, threads: int, seconds: float = 4.0
) -> CostModel:
    """Time `model` with random masks of several densities on the selected weights.

    Takes some seconds more than `seconds`. A network that the runtime cannot run is a
    `DeployError`.
    """
    plain, example = plain_copy(model), as_input(batch)
    paths = {candidate.name.rpartition(".")[0] for candidate in selection}
    captured = capture(plain, example)
    networks = {}
    for density in DENSITIES:
        thinned = _thinned(captured, paths, density)
        networks[str(density)] = network = Deployed(plain, example, thinned, threads=threads)
        if network.fallback:
            raise DeployError(f"removed weights make nothing faster: {network.fallback}")
    dense = DenseNetwork(plain, example, threads)
    dense_seconds, found = times(dense, networks, batch, seconds)
    points = tuple(sorted((float(density), time) for density, time in found.items()))
    return CostModel(
        batch=len(batch),
        threads=threads,
        engine=dense.engine,
        dense_seconds=dense_seconds,
        points=points,
    )


def _thinned(graph: Graph, paths: Collection[str], density: float) -> Graph:
    """The graph with a random part of the weights of some modules."""
    generator = np.random.default_rng(0)

    def thinned(operation: Operation) -> Operation:
        inside = any(f"{path}.".startswith(f"{operation.layer}.") for path in paths)
        if density == 1 or not operation.is_layer or not inside:
            return operation
        weight = operation.tensors["weight"]
        kept = generator.permutation(weight.size) < max(1, round(density * weight.size))
        weight = np.where(kept.reshape(weight.shape), weight, np.float32(0))
        return replace(operation, tensors={**operation.tensors, "weight": weight})

    return replace(graph, operations=tuple(map(thinned, graph.operations)))
