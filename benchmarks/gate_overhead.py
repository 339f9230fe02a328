"""What gates cost: time of a training step with them over a dense step, and peak memory.

Compared with the dense network, in one process and interleaved step by step:
- `prunus`: Continuous Sparsification as this library does it, the optimiser moves the scores;
- `prunus, budget`: the same with a budget, the method moves the scores;
- `not native`: the same by PyTorch's operations, without the native core;
- `stored mask`: the paper's published layer, which computes the mask in the forward pass and keeps
  it, and takes the penalty from there;
- `torch prune`: `torch.nn.utils.prune` with a fixed mask, which learns nothing about the mask.

Eager, compiled (`torch.compile` of the model; not of all variants), and memory in eager mode. Run
`make bench`, or parts of it: what is measured replaces only itself in the results file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import prune

import prunus
from prunus.files import write_atomically
from prunus.gates import native
from prunus.selection import Select
from prunus.tables import text_table
from prunus.tasks.networks import build_network

Step = Callable[[], None]
BFLOAT16 = "resnet20, bfloat16"
"""As our experiments are: 16x16 images, `channels_last`, autocast, one thread, 1,000 steps."""
NETWORKS = ["resnet20", BFLOAT16, "vgg16", "mlp", "transformer", "gpt2"]
VARIANTS = ("dense", "prunus", "prunus, budget", "not native", "stored mask", "torch prune")
EAGER_ONLY = ("not native", "torch prune")
PARTS = ("eager", "compiled", "memory")


class StoredMask(nn.Module):
    """The gate as the published code has it: mask and product are made, and kept, each forward."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.score = nn.Parameter(torch.zeros_like(weight))
        self.temperature = 1.0
        self.mask = torch.empty(0)

    def forward(self, weight: Tensor) -> Tensor:
        self.mask = torch.sigmoid(self.temperature * self.score) * 2.0  # 1 / sigmoid(0)
        return weight * self.mask


class TinyTransformer(nn.Module):
    """Four encoder blocks of width 256 on 32 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(64, 256)
        block = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 4, enable_nested_tensor=False)
        self.head = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.embed(x)).mean(1))


class SmallGPT2(nn.Module):
    """A GPT-2 of `transformers`, 256 wide with 4 layers, that predicts the next character."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        sizes = {"n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 64, "vocab_size": 256}
        off = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        ends = {"bos_token_id": None, "eos_token_id": None}
        self.net = GPT2LMHeadModel(GPT2Config(**sizes, **off, **ends, use_cache=False))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.net(tokens).logits.flatten(0, 1)


def networks(name: str) -> tuple[nn.Module, Tensor, Select]:
    """A network, a batch for it, and what of it to sparsify."""
    sizes = {"num_classes": 10, "image_size": 32, "channels": 3}
    match name:
        case "resnet20":
            return build_network("resnet20", **sizes), torch.randn(128, 3, 32, 32), "paper"
        case "resnet20, bfloat16":
            small = build_network("resnet20", **{**sizes, "image_size": 16})
            batch = torch.randn(128, 3, 16, 16).to(memory_format=torch.channels_last)
            return small, batch, "paper"
        case "vgg16":
            return build_network("vgg16", **sizes), torch.randn(64, 3, 32, 32), "paper"
        case "mlp":
            return build_network("mlp", **sizes), torch.randn(128, 3, 32, 32), "linear"
        case "gpt2":
            return SmallGPT2(), torch.randint(0, 256, (32, 64)), "body"
        case _:
            # torch.nn.utils.prune works by hooks that attention's output projection never calls.
            return (
                TinyTransformer(),
                torch.randn(64, 32, 64),
                lambda c: c.kind != "other" and "out_proj" not in c.name,
            )


def make_step(network: str, variant: str, compiled: bool = False) -> Step:
    """A function that does one whole training step of a variant."""
    torch.manual_seed(0)
    model, batch, select = networks(network)
    labels = torch.randint(0, 10, (len(batch) if batch.is_floating_point() else batch.numel(),))
    penalty: Callable[[], Tensor] = lambda: torch.zeros(())  # noqa: E731
    after: Step = lambda: None  # noqa: E731
    groups: list[dict[str, object]] = [{"params": list(model.parameters())}]
    chosen = prunus.choose(model, select)
    if variant in ("prunus", "prunus, budget", "not native"):
        budget = None if variant == "prunus" else 0.1
        steps = 1_000 if network == BFLOAT16 else 10_000
        cs = prunus.ContinuousSparsification(
            model, steps=steps, select=select, rewind_step=None, target_density=budget
        )
        groups, penalty, after = cs.param_groups(lr=0.01, weight_decay=1e-4), cs.penalty, cs.step
    elif variant == "stored mask":
        gates = []
        for candidate in chosen:
            gates.append(StoredMask(candidate.parameter.detach()))
            _, module, attribute = candidate.owners[0]
            torch.nn.utils.parametrize.register_parametrization(
                module, attribute, gates[-1], unsafe=True
            )
        groups = [{"params": list(model.parameters())}]
        penalty = lambda: 1e-8 * sum(gate.mask.sum() for gate in gates)  # noqa: E731
    elif variant == "torch prune":
        for candidate in chosen:
            _, module, attribute = candidate.owners[0]
            prune.random_unstructured(module, attribute, amount=0.9)
        groups = [{"params": list(model.parameters())}]
    if network == BFLOAT16:  # only now: torch.nn.utils.prune cannot attach to it
        model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=1e-4)
    call = torch.compile(model) if compiled else model

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=network == BFLOAT16):
            loss = F.cross_entropy(call(batch), labels) + penalty()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after()

    def step_without_native_core() -> None:
        with patch.object(native, "takes", lambda *_: False):
            step()

    return step_without_native_core if variant == "not native" else step


def time_steps(network: str, seconds: float, compiled: bool) -> dict[str, dict[str, float]]:
    """Median step time of each variant, and the median of its ratio to the dense step beside it.

    `mean` is the ratio of all time: a budget looks at all scores in some steps and not in others.
    """
    if network == BFLOAT16:
        torch.set_num_threads(1)
    threads = torch.get_num_threads()
    # With one thread, time of the processor: other work on the machine does not count.
    clock = time.process_time if threads == 1 else time.perf_counter
    variants = [v for v in VARIANTS if not compiled or v not in EAGER_ONLY]
    steps = {variant: make_step(network, variant, compiled) for variant in variants}
    for step in steps.values():
        step()
        step()
    times: dict[str, list[float]] = {variant: [] for variant in variants}
    end = time.perf_counter() + seconds
    order, shuffle = list(variants), random.Random(0)
    while time.perf_counter() < end or len(times["dense"]) < 5:
        shuffle.shuffle(order)  # what one leaves in caches and heap must not favour another
        for variant in order:
            start = clock()
            steps[variant]()
            times[variant].append(clock() - start)
    ratios = {
        v: statistics.median(t / d for t, d in zip(times[v], times["dense"], strict=True))
        for v in variants
    }
    return {
        v: {
            "ms": 1000 * statistics.median(times[v]),
            "ratio": ratios[v],
            "mean": sum(times[v]) / sum(times["dense"]),
            "steps": len(times[v]),
            "threads": threads,
        }
        for v in variants
    }


def peak_memory(network: str, variant: str) -> float:
    """Peak memory in MiB of three training steps in a fresh process, above what it began with."""
    folder = str(Path(__file__).parent)
    code = (
        f"import sys; sys.path.insert(0, {folder!r}); import gate_overhead as g;"
        f"print(g.memory_of_steps(g.make_step({network!r}, {variant!r})))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    return float(output)


def memory_of_steps(step: Step) -> float:
    """How far the resident memory of this process rises in MiB while it makes three steps."""

    def read(field: str) -> int:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field))

    before = read("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    for _ in range(3):
        step()
    return (read("VmHWM") - before) / 1024


def keep_memory() -> None:
    """Start again with an allocator that does not give memory back to the system.

    Otherwise glibc returns and faults in hundreds of MiB in some steps and not in others, whichever
    variant's turn it is, and that costs more than the gates do.
    """
    settings = {"MALLOC_TRIM_THRESHOLD_": str(2**34), "MALLOC_MMAP_THRESHOLD_": str(2**34)}
    if not settings.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **settings})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/gate_overhead.json"))
    parser.add_argument("--seconds", type=float, default=60, help="measuring time for each network")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    known = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    results = known.get("results", {})
    for network in arguments.networks:
        found = results.setdefault(network, {})
        for part in arguments.parts:
            if part == "memory":
                found[part] = {v: {"peak MiB": peak_memory(network, v)} for v in VARIANTS}
            else:
                torch.set_num_threads(arguments.threads)
                found[part] = time_steps(network, arguments.seconds, part == "compiled")
            rows = [
                [variant, *(f"{number:.3f}" for number in numbers.values())]
                for variant, numbers in found[part].items()
            ]
            print(f"\n{network}, {part}")
            print(text_table(["variant", *found[part]["dense"]], rows), flush=True)
        results = {name: results[name] for name in NETWORKS if name in results}
        machine = {"processor": platform.processor() or platform.machine(),
                   "torch": torch.__version__, "load": round(os.getloadavg()[0], 1)}  # fmt: skip
        content = {"machine": machine, "results": results}
        write_atomically(arguments.out, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    keep_memory()
    main()
