"""From a search on CIFAR-10 to a deployed file: accuracy and images a second, before and after.

For each network, with the commands' own code: train the dense network, search a ticket by CS with a
budget, re-train it, deploy it. Runs are kept in `runs/deploy-example` and not done again.

    python benchmarks/deploy_example.py --data DIR      # about half an hour on two cores
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import prunus
from deploy import Run
from prunus import Ticket
from prunus.deployment.onnx import encode_onnx, session
from prunus.deployment.timing import medians
from prunus.search import execute, resolve
from prunus.tasks import Task
from prunus.tasks.data import LoaderOptions
from prunus_runtime.atomic import write_atomically

RESULTS = Path("results/deploy-example.json")
RUNS = Path("runs/deploy-example")
BATCHES = (1, 128)
NETWORKS: dict[str, dict[str, Any]] = {
    "resnet20": {"epochs": 8, "lr": 0.1, "target_density": 0.05},
    "vgg16-13": {"epochs": 8, "lr": 0.03, "target_density": 0.02},
}


def runs(name: str, data: Path) -> tuple[Task, Ticket, Ticket]:
    """The task, and the trained weights: of the dense network, and of the re-trained ticket."""
    chosen = NETWORKS[name]
    one = partial(run, network=name, data=data, out=RUNS, epochs=chosen["epochs"], lr=chosen["lr"])
    budget = {"name": "cs", "target_density": chosen["target_density"]}
    dense, task = one("train")
    found, _ = one("search", method=budget, rounds=1, rewind_epoch=1)
    trained, _ = one("retrain", ticket=str(found))
    return task, Ticket.load(dense), Ticket.load(trained)


def run(
    command: str, network: str, data: Path, out: Path, epochs: int, lr: float, **more: Any
) -> tuple[Path, Task]:
    """A run on 10,000 images of CIFAR-10 at 16x16 pixels, if it was not done before: its ticket."""
    given: dict[str, Any] = {
        "task": f"cifar10/{network}",
        "recipe": {"epochs": epochs, "lr": lr},
        "data": {"image_size": 16, "train_images": 10_000, "validation_images": 1000},
        "engine": {"channels_last": True},
        "data_root": str(data),
        "out": str(out),
        **more,
    }
    settings, task = resolve(command, given)
    results = execute(settings, task)
    return settings.folder / results["stages"][-1]["ticket"], task


def accuracy(run: Run, task: Task) -> float:
    """On all test images."""
    options = LoaderOptions(500, device=torch.device("cpu"))
    right = total = 0
    for x, y in task.data.evaluation("test", options).epoch(0):
        right += int((np.asarray(run(x.numpy())).argmax(1) == y.numpy()).sum())
        total += len(y)
    return right / total


def measure(
    name: str, task: Task, trained_dense: Ticket, ticket: Ticket, seconds: float
) -> dict[str, Any]:
    """What one network was, and what became of it."""
    dense = trained_dense.apply(task.build()).eval()
    example = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    deployed = prunus.deploy(task.build(), ticket, example, weights="ticket")
    report = deployed.report(speed=False)
    assert report.after is not None and report.before is not None
    ways: dict[str, Run] = {
        "dense, PyTorch": _in_torch(dense),
        "dense, ONNX Runtime": session(encode_onnx(dense, example), torch.get_num_threads()),
        "sparse, PyTorch": _in_torch(deployed.dense),
        "sparse, deployed": deployed,
    }
    sizes = {"dense": report.dense_bytes, "deployed": report.file_bytes["fp32"]}
    rows: dict[str, dict[str, Any]] = {
        way: {"accuracy": accuracy(run, task), "images_per_second": {}} for way, run in ways.items()
    }
    for batch in BATCHES:
        x = np.random.default_rng(0).standard_normal((batch, 3, 16, 16)).astype(np.float32)
        calls = {way: partial(run, x) for way, run in ways.items()}
        for way, time in medians(calls, seconds * len(calls)).items():
            rows[way]["images_per_second"][batch] = batch / time
    return {
        "network": name,
        "settings": NETWORKS[name],
        "kept_weights": report.before.kept_weights / report.before.weights,
        "kept_macs": report.before.kept_macs / report.before.macs,
        "bytes": sizes,
        "max_difference": report.max_difference,
        "rows": rows,
    }


def _in_torch(model: nn.Module) -> Run:
    return lambda x: model(torch.from_numpy(x)).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--seconds", type=float, default=3.0, help="for each network and engine")
    arguments = parser.parse_args()
    found = []
    for name in arguments.networks:
        trained = runs(name, arguments.data)
        with torch.no_grad():
            found.append(measure(name, *trained, arguments.seconds))
        print(json.dumps(found[-1], indent=1))
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
