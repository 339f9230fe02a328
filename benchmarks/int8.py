"""How much faster int8 is than float32 in the sparse runtime, and what it does to accuracy.

Three parts, on a processor with VNNI: `layers` with random masks, as lists of kept weights and in
bundles of filters, from which the constants `WORTH` (`prunus/deployment/int8.py`) and `FULL_PACKED`
(`prunus_runtime/plan/tiled.py`) come; whole `networks` with random masks; and `runs`, trained
networks with their masks, of which the accuracy is measured too. A time is the least processor time
of one thread, which a busy machine disturbs little; all ways take turns.

Run `python benchmarks/int8.py --out results/int8.json`, and then the same with
`--parts runs --runs LABEL=FOLDER ... --data DIR`; a quarter of an hour. What the file has of other
parts stays.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from crossover import LAYERS, Layer
from deployed_runs import accuracy, trained
from deployed_speed import inputs, masked, network
from prunus.cli.deploy import calibration_of
from prunus.deployment import deploy
from prunus.deployment.int8 import in_int8, int8_layers
from prunus.deployment.onnx import encode_onnx, session
from prunus.files import write_atomically
from prunus_runtime.executor import Executor
from prunus_runtime.file import encode
from prunus_runtime.measures import measure
from prunus_runtime.native import instruction_set, lanes, packs

DENSITIES = (0.05, 0.1, 0.15, 0.2, 0.35, 0.5, 1.0)
NETWORKS = ("resnet20", "vgg16-13", "vit-64", "bert-64", "gpt-64")
SPARSITIES = (0.0, 0.5, 0.8, 0.9, 0.95)
BATCHES = (1, 16)
TURNS, SECONDS = 5, 0.02
"""Turns of each way, and seconds of a turn."""


def least(ways: Mapping[str, Callable[[], object]], turns: int = TURNS) -> dict[str, float]:
    """The least processor time of a call of each way."""
    found = dict.fromkeys(ways, np.inf)
    for _ in range(turns):
        for name, way in ways.items():
            way()
            end = thread_time() + SECONDS
            while (start := thread_time()) < end:
                way()
                found[name] = min(found[name], thread_time() - start)
    return found


def layer_row(layer: Layer, batch: int, density: float) -> dict[str, Any]:
    """Seconds of a layer in float32, and in int8 as lists and in bundles."""
    graph = layer.graph(density)
    x = np.random.default_rng(1).standard_normal((batch, *graph.input_shape)).astype(np.float32)
    x = np.maximum(x, 0)
    ways = {"fp32": partial(Executor(graph, 1), x)}
    with patch("prunus.deployment.int8.WORTH", 0):
        rounded = in_int8(graph, x)
    for name, full in (("lists", 2), ("bundles", -1)):
        constants = {"FULL_PACKED": full, "FULL_PACKED_ACROSS": full}
        with patch.multiple("prunus_runtime.plan.tiled", **constants):
            executor = Executor(rounded, 1)
            executor(x)
        ways[name] = partial(executor, x)
    way = "along" if batch == 1 else "across"
    return {"layer": str(layer), "way": way, "density": density, "seconds": least(ways)}


def layers() -> list[dict[str, Any]]:
    """By density and way: the median over all layers of what int8 gains, either way."""
    rows = [
        layer_row(layer, batch, density)
        for layer in LAYERS
        if layer.size
        for batch in (1, lanes(instruction_set()))
        for density in DENSITIES
    ]
    found = []
    for way, density in dict.fromkeys((row["way"], row["density"]) for row in rows):
        times = [row["seconds"] for row in rows if (row["way"], row["density"]) == (way, density)]
        gains = {
            name: median(time["fp32"] / time[name] for time in times)
            for name in ("lists", "bundles")
        }
        found.append({"way": way, "density": density, "layers": len(times), **gains})
        print(found[-1], flush=True)
    return found


def compared(exact: Any, rounded: Any, x: Any, others: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of one batch: in float32, in int8, and of other engines."""
    ways = {"fp32": exact, "int8": rounded, **others}
    return least({name: partial(way, x) for name, way in ways.items()})


def networks(names: Sequence[str], sparsities: Sequence[float]) -> list[dict[str, Any]]:
    """One row for each network, random mask and batch."""
    rows = []
    for name in names:
        dense, example = network(name, 0), torch.from_numpy(inputs(name, 2))
        others = {"onnxruntime": session(encode_onnx(dense, example), 1)}
        for sparsity in sparsities:
            exact = deploy(masked(dense, sparsity), None, example, threads=1)
            rounded = exact.int8(inputs(name, 32))
            chosen, all_layers = int8_layers(rounded.graph), exact.graph.operations
            for batch in BATCHES:
                x = inputs(name, batch)
                y, again = exact(x), rounded(x)
                rows.append(
                    {
                        "network": name,
                        "sparsity": sparsity,
                        "batch": batch,
                        "layers": sum(operation.is_layer for operation in all_layers),
                        "int8_layers": len(chosen),
                        "relative_difference": float(np.abs(again - y).max() / np.abs(y).max()),
                        "seconds": compared(exact, rounded, x, others),
                    }
                )
                print(rows[-1], flush=True)
    return rows


def run_row(label: str, folder: Path, data: Path) -> dict[str, Any]:
    """What int8 does to a trained network: accuracy, bytes, and seconds of each batch."""
    task, _, exact = trained(folder, data, threads=1)
    inputs = calibration_of(task)
    rounded = exact.int8(inputs)
    sizes, all_layers = measure(exact.captured), exact.graph.operations
    ways = {"fp32": exact, "fp16": exact.stored("fp16"), "int8 stored": exact.stored("int8")}
    ways["int8"] = rounded.stored("int8")
    row = {
        "network": label,
        "kept_weights": sizes.kept_weights / sizes.weights,
        "kept_macs": sizes.kept_macs / sizes.macs,
        "layers": sum(operation.is_layer for operation in all_layers),
        "int8_layers": len(int8_layers(rounded.graph)),
        "bytes": {
            "fp32": len(encode(exact.graph)),
            "fp16": len(encode(exact.graph, "fp16")),
            "int8 stored": len(encode(exact.graph, "int8")),
            "int8": len(encode(rounded.graph, "int8")),
        },
        "accuracy": {name: accuracy(task, way) for name, way in ways.items()},
        "seconds": {
            str(batch): compared(exact, rounded, inputs[:batch].numpy(), {}) for batch in BATCHES
        },
    }
    print(row, flush=True)
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", nargs="*", default=["layers", "networks"])
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--sparsities", nargs="*", type=float, default=SPARSITIES)
    parser.add_argument("--runs", nargs="*", default=[], metavar="LABEL=FOLDER")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if not packs(instruction_set()):
        raise SystemExit("this processor does not multiply bytes: AVX-512 with VNNI is needed")
    torch.set_num_threads(1)
    out = options.out
    result = json.loads(out.read_text()) if out and out.exists() else {}
    if "layers" in options.parts:
        result["layers"] = layers()
    if "networks" in options.parts:
        result["networks"] = networks(options.networks, options.sparsities)
    if "runs" in options.parts:
        pairs = [entry.split("=", 1) for entry in options.runs]
        result["runs"] = [run_row(label, Path(place), options.data) for label, place in pairs]
    if out:
        result["load"] = os.getloadavg()[0]
        write_atomically(out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
