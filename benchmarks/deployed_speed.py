"""How much faster deployed networks are: times of dense ONNX Runtime over theirs.

ConvNets and vision transformers on images; of tokens a BERT, whose sequences are padded, and a GPT.
All transformers have four layers, 256 wide; `bert-64` is one for sequences of 64.

For each network, sparsity and batch, in one process and in turns: the sparse runtime, dense ONNX
Runtime, dense PyTorch, eager and compiled (unless `--no-compile`), and OpenVINO if it is installed.
Masks are random, the same density in every layer, or those of tickets (`--ticket NETWORK=FILE`).

Run `python benchmarks/deployed_speed.py --out results/deploy.json` for the ConvNets, and with
`--networks vit-64 ... --sparsities 0.8 0.9 0.95 --out results/deploy-transformers.json` for the
others; half an hour each. What the file has of other networks stays, so they can be measured one by
one.
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
from prunus.tasks.networks.vit import VisionTransformer
from prunus.tickets.ticket import Ticket
from prunus_runtime.measures import measure as runtime_measure
from prunus_runtime.native import instruction_set

Run = Callable[[np.ndarray], Any]
NETWORKS = {
    "vgg16-13": (32, (1, 16, 128)),
    "resnet20": (32, (1, 16, 128)),
    "resnet50": (224, (1, 8)),
    **{f"{kind}-{n}": (n, (1, 16)) for kind in ("vit", "bert", "gpt") for n in (64, 128)},
}
"""Image size, or of a transformer the length of sequences; and batches."""
CONVNETS = [name for name in NETWORKS if "-" not in name or name.startswith("vgg")]
SPARSITIES = (0.8, 0.9, 0.95, 0.98, 0.995)
WIDTH, DEPTH, HEADS = 256, 4, 4
VOCABULARY = {"bert": 30522, "gpt": 1000}
PATCH = 4


class Bert(nn.Module):
    """A classifier of sequences from `transformers`, told which tokens are padding (0)."""

    def __init__(self, length: int) -> None:
        from transformers import BertConfig, BertForSequenceClassification

        super().__init__()
        self.model = BertForSequenceClassification(
            BertConfig(
                vocab_size=VOCABULARY["bert"],
                hidden_size=WIDTH,
                num_hidden_layers=DEPTH,
                num_attention_heads=HEADS,
                intermediate_size=4 * WIDTH,
                max_position_embeddings=length,
            )
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(tokens, attention_mask=(tokens != 0).long()).logits
        return logits


def network(name: str, seed: int) -> nn.Module:
    """The network with weights as at the start, and batch norms that do something."""
    torch.manual_seed(seed)
    size, kind = NETWORKS[name][0], name.partition("-")[0]
    if kind == "bert":
        return Bert(size).eval()
    shape = {"width": WIDTH, "depth": DEPTH, "heads": HEADS}
    if kind == "gpt":
        return GPT(vocabulary=VOCABULARY["gpt"], context=size, **shape).eval()
    if kind == "vit":
        square = {"num_classes": 10, "image_size": 32, "channels": 3, "patch": PATCH}
        vit = VisionTransformer(**square, **shape)
        vit.positions = nn.Parameter(torch.randn(1, size, WIDTH))
        return vit.eval()
    classes = 1000 if size == 224 else 10
    model = build_network(name, num_classes=classes, image_size=size, channels=3).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model


def inputs(name: str, count: int) -> np.ndarray:
    """A random batch for the network. Images of a vision transformer are 32 high and as wide as
    gives the length; sequences of BERT fill a half to all of it."""
    size, kind, random = NETWORKS[name][0], name.partition("-")[0], np.random.default_rng(0)
    if kind in VOCABULARY:
        tokens = random.integers(1, VOCABULARY[kind], (count, size))
        if kind == "bert":
            lengths = random.integers(size // 2, size + 1, (count, 1))
            tokens[np.arange(size) >= lengths] = 0
        return tokens
    height, width = (32, size * PATCH**2 // 32) if kind == "vit" else (size, size)
    return random.standard_normal((count, 3, height, width)).astype(np.float32)


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


def _others(path: Path, measured: list[str]) -> list[dict]:
    """What the file has of networks that were not measured again."""
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return [row for row in rows if row["network"] not in measured]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="*", default=CONVNETS, choices=list(NETWORKS))
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
        result = {**setting, "rows": [*_others(options.out, options.networks), *rows]}
        write_atomically(options.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
