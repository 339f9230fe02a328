"""What `penalty_cost="macs"` does: weights, multiply-adds, speed and accuracy of masks found by CS.

On CIFAR-10 at 16x16 pixels, each network is pruned with the same penalties, once counted in weights
and once in multiply-adds, and fine-tuned. The speed is that of the deployed networks, measured in
turns. Runs are kept in `runs/penalty-cost` and not done again.

    python benchmarks/penalty_cost.py --data DIR      # about a quarter of an hour on two cores
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deploy_example import run
from prunus import Ticket
from prunus.deployment import deploy
from prunus.deployment.finding import accuracy
from prunus.deployment.timing import medians
from prunus_runtime.atomic import write_atomically

RESULTS = Path(__file__).parent.parent / "results" / "penalty_cost.json"
RUNS = Path("runs/penalty-cost")
NETWORK, BATCH, EPOCHS = "vgg16-quarter", 128, 8
PENALTIES = (3e-7, 3e-6)
COSTS = ("weights", "macs")


def pruned(penalty: float, cost: str, data: Path) -> tuple[dict[str, Any], Any]:
    """What was kept at which accuracy, and the deployed network."""
    method = {"name": "cs", "penalty": penalty, "penalty_cost": cost, "mask_init": 0.0}
    path, task = run("prune", NETWORK, data, RUNS, EPOCHS, 0.03, method=method)
    ticket = Ticket.load(path)
    example = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    deployed = deploy(task.build(), ticket, example, weights="ticket")
    sizes = deployed.report(speed=False).before
    assert sizes is not None
    found = {
        "network": NETWORK,
        "penalty": penalty,
        "cost": cost,
        "kept_weights": sizes.kept_weights / sizes.weights,
        "kept_macs": sizes.kept_macs / sizes.macs,
        "test_accuracy": accuracy(task, ticket.apply(task.build()).eval())["test"],
    }
    return found, deployed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--seconds", type=float, default=2.0, help="of timing, for each network")
    arguments = parser.parse_args()
    rows, ways = [], {}
    x = np.random.default_rng(0).standard_normal((BATCH, 3, 16, 16)).astype(np.float32)
    for penalty in PENALTIES:
        for cost in COSTS:
            found, deployed = pruned(penalty, cost, arguments.data)
            print(json.dumps(found), flush=True)
            rows.append(found)
            ways[str(len(rows) - 1)] = partial(deployed, x)
    for way, time in medians(ways, arguments.seconds * len(ways)).items():
        rows[int(way)]["images_per_second"] = BATCH / time
    write_atomically(RESULTS, json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
