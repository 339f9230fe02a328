"""How much faster deployed networks are: times of dense ONNX Runtime over theirs.

ConvNets and a vision transformer on images, and a GPT on tokens.

For each network, sparsity and batch, in one process and in turns: the sparse runtime, dense ONNX
Runtime, dense PyTorch, eager and compiled (unless `--no-compile`), and OpenVINO if it is installed.
Masks are random, the same density in every layer, or those of tickets (`--ticket NETWORK=FILE`).

Run `python benchmarks/deployed_speed.py --out results/deploy.json`; about half an hour.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from prunus import candidates
from prunus.deployment import deploy
from prunus.deployment.onnx import encode_onnx, session
from prunus.deployment.timing import medians
from prunus.files import write_atomically
from prunus.tables import text_table
from prunus.tasks.networks import build_network
from prunus.tasks.networks.gpt import GPT
from prunus.tickets.ticket import Ticket
from prunus_runtime.measures import measure as runtime_measure
from prunus_runtime.native import instruction_set

Run = Callable[[np.ndarray], Any]
NETWORKS = {
    "vgg16-13": (32, (1, 16, 128)),
    "resnet20": (32, (1, 16, 128)),
    "resnet50": (224, (1, 8)),
    "vit": (32, (1, 16)),
    "gpt-64": (64, (1, 16)),
    "gpt-128": (128, (1, 16)),
}
"""Image size, or for a GPT the length of sequences; and batches."""
SPARSITIES = (0.8, 0.9, 0.95, 0.98, 0.995)
VOCABULARY = 1000


def network(name: str, seed: int) -> nn.Module:
    """The network with weights as at the start, and batch norms that do something."""
    torch.manual_seed(seed)
    size = NETWORKS[name][0]
    if name.startswith("gpt"):
        return GPT(vocabulary=VOCABULARY, context=size, width=256, depth=4, heads=8).eval()
    classes = 1000 if size == 224 else 10
    model = build_network(name, num_classes=classes, image_size=size, channels=3).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model


def inputs(name: str, count: int) -> np.ndarray:
    """A random batch for the network."""
    size, random = NETWORKS[name][0], np.random.default_rng(0)
    if name.startswith("gpt"):
        return random.integers(0, VOCABULARY, (count, size))
    return random.standard_normal((count, 3, size, size)).astype(np.float32)


def masked(model: nn.Module, sparsity: float) -> nn.Module:
    """A copy with random weights of each convolution and linear layer removed."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for candidate in candidates(model):
            if candidate.kind in ("conv", "linear", "attention"):
                weight = candidate.parameter
                weight.mul_(torch.rand_like(weight) >= sparsity)
    return model


def rivals(model: nn.Module, example: torch.Tensor, threads: int, compiled: bool) -> dict[str, Run]:
    """The dense network in other engines."""
    content = encode_onnx(model, example)
    found: dict[str, Run] = {
        "onnxruntime": session(content, threads),
        "torch": lambda x: model(torch.from_numpy(x)),
    }
    if compiled:
        fast = torch.compile(model, dynamic=False)
        found["torch.compile"] = lambda x: fast(torch.from_numpy(x))
    if find_spec("openvino"):
        import openvino

        core = openvino.Core()
        settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        infer = core.compile_model(core.read_model(content), "CPU", settings)
        found["openvino"] = lambda x: infer(x)
    return found


def difference(model: nn.Module, run: Run, x: np.ndarray) -> float:
    """The largest difference from PyTorch, relative to the output's scale."""
    expected = model(torch.from_numpy(x)).numpy()
    return float(np.abs(run(x) - expected).max() / np.abs(expected).max())


def measure(name: str, sparse: dict[str, nn.Module], options: argparse.Namespace) -> list[dict]:
    """One row for each batch and sparse network (by its label)."""
    example, batches = torch.from_numpy(inputs(name, 2)), NETWORKS[name][1]
    others = rivals(network(name, options.seed), example, options.threads, options.compile)
    deployed = {
        label: deploy(model, None, example, threads=options.threads)
        for label, model in sparse.items()
    }
    sizes = {label: runtime_measure(it.captured) for label, it in deployed.items()}
    rows = []
    for batch in options.batches or batches:
        x = inputs(name, batch)
        engines = {**others, **deployed}
        ways = {label: partial(run, x) for label, run in engines.items()}
        times = medians(ways, options.seconds * len(ways))
        for label in deployed:
            total = sizes[label]
            rows.append(
                {
                    "network": name,
                    "batch": batch,
                    "mask": label,
                    "kept_weights": total.kept_weights / total.weights,
                    "kept_macs": total.kept_macs / total.macs,
                    "relative_difference": difference(sparse[label], deployed[label], x[:8]),
                    "seconds": times[label],
                    "dense_seconds": {other: times[other] for other in others},
                    "speedup": times["onnxruntime"] / times[label],
                }
            )
            print(f"{name}, batch {batch}, {label}: {rows[-1]['speedup']:.2f}", flush=True)
    return rows


def table(rows: list[dict]) -> str:
    """Speed-ups over dense ONNX Runtime, masks as columns."""
    labels = list(dict.fromkeys(row["mask"] for row in rows))
    lines = []
    for place in dict.fromkeys((row["network"], row["batch"]) for row in rows):
        found = {r["mask"]: r["speedup"] for r in rows if (r["network"], r["batch"]) == place}
        lines.append([*map(str, place), *(f"{found[k]:.1f}" if k in found else "" for k in labels)])
    return text_table(["network", "batch", *labels], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--sparsities", nargs="*", type=float, default=list(SPARSITIES))
    parser.add_argument("--batches", nargs="*", type=int, help="instead of those of the table")
    parser.add_argument("--ticket", action="append", default=[], metavar="NETWORK=FILE")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each network and engine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)

    rows = []
    for name in options.networks:
        dense = network(name, options.seed)
        sparse = {f"{100 * s:g} %": masked(dense, s) for s in options.sparsities}
        for given in options.ticket:
            wanted, _, path = given.partition("=")
            if wanted == name:
                ticket = Ticket.load(path)
                label = f"{ticket.manifest.method}, {100 * ticket.mask.density:.3g} % kept"
                sparse[label] = ticket.mask.apply(copy.deepcopy(dense))
        rows += measure(name, sparse, options)
    print(table(rows))
    if options.out:
        machine = {"isa": instruction_set(), "cores": os.cpu_count()}
        names = [name for name in ("torch", "onnxruntime", "openvino") if find_spec(name)]
        versions = {name: version(name) for name in names}
        setting = {"threads": options.threads, "machine": machine, "versions": versions}
        result = {**setting, "rows": rows}
        write_atomically(options.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
