"""What a training step on a CPU gains if the process keeps the memory that it frees.

`prunus.training` has glibc do so. Each network is trained in fresh processes, with it and without
in turn: batches of 128 images, bfloat16, channels-last, one thread. Counted is the time of the
processor, so that other work beside it matters less.

Run `python benchmarks/kept_memory.py`.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from prunus.files import write_atomically
from prunus.runs.origin import here
from prunus.tables import text_table
from prunus.tasks.networks import build_network
from prunus.training.memory import keep_freed_memory

RESULTS = Path(__file__).parents[1] / "results" / "kept-memory.json"
NETWORKS = [("resnet20", 16, 40), ("resnet20", 32, 10), ("vgg16-quarter", 32, 20)]
"""With how many pixels, and how many steps are measured."""
WARM_UP = 3


def train(network: str, size: int, steps: int, *, keep: bool) -> dict[str, float]:
    """In this process: milliseconds a step, pages a step that the system cleared, peak memory."""
    if keep:
        assert keep_freed_memory()
    torch.set_num_threads(1)
    model = build_network(network, num_classes=10, image_size=size, channels=3)
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(128, 3, size, size).to(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (128,))
    times, faults = [], 0
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.process_time()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.process_time() - start)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "milliseconds": 1e3 * statistics.median(times[WARM_UP:]),
        "pages": (usage.ru_minflt - faults) / steps,
        "peak MiB": usage.ru_maxrss / 1024,
    }


def measured(network: str, size: int, steps: int, *, keep: bool) -> dict[str, float]:
    """The same in a fresh process."""
    command = [sys.executable, __file__, "--one", network, str(size), str(steps), str(int(keep))]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, float] = json.loads(found)
    return result


def compare(network: str, size: int, steps: int, turns: int) -> dict[str, Any]:
    runs = [[measured(network, size, steps, keep=k) for k in (False, True)] for _ in range(turns)]
    before, after = (
        {key: statistics.median(run[way][key] for run in runs) for key in runs[0][way]}
        for way in range(2)
    )
    ratio = statistics.median(a["milliseconds"] / b["milliseconds"] for a, b in runs)
    return {"network": network, "pixels": size, "given back": before, "kept": after, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        network, size, steps, keep = given.one
        print(json.dumps(train(network, int(size), int(steps), keep=keep == "1")))
        return
    found = [compare(*network, given.turns) for network in NETWORKS]
    rows = [[f"{r['network']}, {r['pixels']}", f"{r['ratio']:.2f}"] for r in found]
    print(text_table(["network, pixels", "times as fast"], rows))
    content = {"machine": here().machine, "results": found}
    write_atomically(RESULTS, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
