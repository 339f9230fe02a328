"""What a budget costs as networks grow: time and memory of a shift and of the final cut.

For each number of weights: a shift of the scores, the measuring of their spread (both happen some
200 times a round) and the cut that ends a round; and, in turn with them, what a sort would take
(`kthvalue` for the first two, a stable sort for the cut), up to a size. Memory is what comes on top
of the scores. Scores are normal, in tensors of a million.

Run `python benchmarks/budget_growth.py --sizes 1e7 3e7 1e8`. A billion scores take 4 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from gate_overhead import memory_of_steps
from prunus.files import write_atomically
from prunus.gates import Layout, SigmoidGate
from prunus.methods.common.budget import cut_scores, shift_scores, spread
from prunus.methods.common.competition import Budget
from prunus.tables import text_table

DENSITY = 0.1
TENSOR = 1_000_000


def make_gates(weights: int) -> list[SigmoidGate]:
    """Gates with so many scores in all. No weights: they would only take memory."""
    torch.manual_seed(0)
    gates = []
    for start in range(0, weights, TENSOR):
        shape = (min(TENSOR, weights - start),)
        gate = SigmoidGate(torch.empty(0), Layout((0,), (0,), (0,)), 0.0, 1.0, penalised=False)
        gate.layout = Layout(shape, shape, shape)
        gate.score = torch.nn.Parameter(torch.randn(shape))
        gates.append(gate)
    return gates


def scores(gates: list[SigmoidGate]) -> Tensor:
    return torch.cat([gate.score.detach().flatten() for gate in gates])


def actions(gates: list[SigmoidGate]) -> dict[str, Callable[[], object]]:
    """What is measured, by its name."""
    removed = round((1 - DENSITY) * sum(gate.score.numel() for gate in gates))

    def by_sorting() -> None:
        s = scores(gates)
        tau = s.kthvalue(removed).values
        for gate in gates:
            gate.score.data.sub_(tau)

    def spread_by_sorting() -> float:
        s = scores(gates)
        return float(s[s > 0].median())

    return {
        "shift": lambda: shift_scores(gates, Budget(DENSITY)),
        "shift by sorting": by_sorting,
        "spread": lambda: spread(gates),
        "spread by sorting": spread_by_sorting,
        "cut": lambda: cut_scores(gates, Budget(DENSITY)),
        "cut by sorting": lambda: scores(gates).argsort(descending=True, stable=True),
    }


def measure(weights: int, repeats: int, sort_up_to: float) -> dict[str, float]:
    """Seconds of each, and the memory (MiB) of the two that matter."""
    gates = make_gates(weights)
    todo = {
        name: action
        for name, action in actions(gates).items()
        if weights <= sort_up_to or "sorting" not in name
    }
    # First, before anything else has made the process large.
    memory = {f"{name} MiB": memory_of_steps(todo[name]) for name in ("shift", "cut")}
    times: dict[str, list[float]] = {name: [] for name in todo}
    for _ in range(repeats):
        for name, action in todo.items():
            start = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()} | memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e7, 3e7, 1e8])
    parser.add_argument("--sort-up-to", type=float, default=1e8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/budget_growth.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results = {}
    for size in map(int, arguments.sizes):
        results[str(size)] = found = measure(size, arguments.repeats, arguments.sort_up_to)
        print(f"{size:,} weights")
        print(text_table(list(found), [[f"{value:.3f}" for value in found.values()]]), flush=True)
    machine = {
        "processor": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": arguments.threads,
        "load": os.getloadavg()[0],
    }
    content = {"machine": machine, "results": results}
    write_atomically(arguments.out, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
