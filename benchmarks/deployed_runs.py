"""Accuracy, speed and size of runs of one task: the dense network, and sparse ones deployed.

Give the folder of a dense run (`prunus train`), then those of runs that pruned or re-trained the
same network. All engines are timed in one process and in turns; the accuracies of all are measured
here, on the whole test set.

On a quiet machine, about a minute a run:
`python benchmarks/deployed_runs.py DENSE SPARSE --data DIR --out results/deploy-example.json`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import prunus
from prunus.deployment import Deployed, deploy
from prunus.deployment.onnx import encode_onnx, session
from prunus.deployment.timing import medians
from prunus.files import write_atomically
from prunus.runs.results import read_results
from prunus.runs.settings import TaskOfRun
from prunus.runs.settings_file import read_settings
from prunus.tasks import Task, load_task
from prunus.tasks.data import LoaderOptions
from prunus_runtime.native import instruction_set

BATCHES = (1, 128)
Run = Callable[[np.ndarray], Any]


class Trained(NamedTuple):
    """What a run ended with."""

    task: Task
    ticket: prunus.Ticket
    deployed: Deployed


def trained(folder: Path, data: Path, threads: int) -> Trained:
    results = read_results(folder)
    assert results is not None and results.finished, f"{folder} is not a finished run"
    path = [stage.ticket for stage in results.stages if stage.ticket][-1]
    ticket = prunus.Ticket.load(folder / path)
    own = TaskOfRun.parse(read_settings(folder / "settings.yaml"))
    task = load_task(ticket.manifest.task or "", data, own.data)
    example = batch_of(task, 128)
    made = deploy(task.build(), ticket, example, weights="ticket", threads=threads)
    return Trained(task, ticket, made)


def batch_of(task: Task, size: int) -> Tensor:
    return next(iter(test_batches(task, size)))[0]


def test_batches(task: Task, size: int = 500) -> Any:
    return task.data.evaluation("test", LoaderOptions(size, device=torch.device("cpu"))).epoch(0)


def accuracy(task: Task, run: Run) -> float:
    right = total = 0
    for images, labels in test_batches(task):
        found = torch.as_tensor(run(images.contiguous().numpy())).argmax(1)
        right, total = right + int((found == labels).sum()), total + len(labels)
    return right / total


def in_torch(model: nn.Module) -> Run:
    return lambda x: model(torch.from_numpy(x))


def measure(dense: Trained, sparse: Trained, name: str, options: argparse.Namespace) -> dict:
    """One network in four forms, and how exact the last one is."""
    plain, example = dense.deployed.plain, batch_of(dense.task, 2)
    ways: dict[str, Run] = {
        "dense, PyTorch": in_torch(plain),
        "dense, ONNX Runtime": session(encode_onnx(plain, example), options.threads),
        "sparse, PyTorch": in_torch(sparse.deployed.plain),
        "sparse, deployed": sparse.deployed,
    }
    rows: dict[str, dict[str, Any]] = {
        way: {"accuracy": accuracy(sparse.task, run), "images_per_second": {}}
        for way, run in ways.items()
    }
    for batch in BATCHES:
        x = batch_of(sparse.task, batch).contiguous().numpy()
        times = medians({way: partial(run, x) for way, run in ways.items()}, 4 * options.seconds)
        for way, seconds in times.items():
            rows[way]["images_per_second"][str(batch)] = batch / seconds
    report = sparse.deployed.report(speed=False)
    assert report.before is not None, report.fallback
    return {
        "network": name,
        "run": sparse.ticket.manifest.method,
        "density": sparse.ticket.mask.density,
        "kept_weights": report.before.kept_weights / report.before.weights,
        "kept_macs": report.before.kept_macs / report.before.macs,
        "bytes": {"dense": report.plain_bytes, "deployed": report.file_bytes["fp32"]},
        "max_difference": report.max_difference,
        "threads": options.threads,
        "machine": {"isa": instruction_set(), "cores": os.cpu_count()},
        "rows": rows,
    }


@torch.no_grad()
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dense", type=Path)
    parser.add_argument("sparse", type=Path, nargs="+")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each engine and batch")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    dense = trained(options.dense, options.data, options.threads)
    found = []
    for folder in options.sparse:
        sparse = trained(folder, options.data, options.threads)
        name = f"{dense.task.name.partition('/')[2]}, {100 * sparse.ticket.mask.density:.2g} % kept"
        found.append(measure(dense, sparse, name, options))
        print(json.dumps(found[-1], indent=1), flush=True)
    if options.out:
        write_atomically(options.out, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
