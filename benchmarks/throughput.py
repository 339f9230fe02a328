"""Images a second of ResNet-20 training on CIFAR-10: this engine against the usual way.

The usual way: images through PIL one by one (pad, crop, flip, to tensor, normalise) in a DataLoader
with two workers, training in eager mode and NCHW. The engine: whole batches augmented at once,
channels-last; and the same compiled. And the input pipeline of the engine alone, to compare with
what the network consumes. All in one process, a few steps of each in turn.

Run `python benchmarks/throughput.py --data data` (the folder that has `cifar-10-batches-py`).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from prunus.files import write_atomically
from prunus.tables import text_table
from prunus.tasks import RECIPES, load_task
from prunus.tasks.data import ArrayData
from prunus.training import Engine, Trainer
from prunus.training.settings import EngineSettings

BATCH = 128
Rate = Callable[[int], float]
"""Makes so many steps, and says how many images a second they took."""


class OneByOne(Dataset[tuple[Tensor, int]]):
    """The training images as PIL images with the usual transforms."""

    def __init__(self, data: ArrayData) -> None:
        self.images = data.train.images.permute(0, 2, 3, 1).numpy()
        self.labels = data.train.labels.tolist()
        self.mean, self.std = (torch.tensor(x)[:, None, None] for x in (data.mean, data.std))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = ImageOps.expand(Image.fromarray(self.images[index]), 4)
        left, top = random.randint(0, 8), random.randint(0, 8)
        image = image.crop((left, top, left + 32, top + 32))
        if random.random() < 0.5:
            image = ImageOps.mirror(image)
        tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(255)
        return tensor.sub_(self.mean).div_(self.std), self.labels[index]


def usual_way(data: ArrayData, model: torch.nn.Module) -> Rate:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    loader = DataLoader(OneByOne(data), BATCH, shuffle=True, num_workers=2, drop_last=True)

    def rate(steps: int) -> float:
        batches = iter(loader)  # its workers live only while they are measured
        next(batches)
        start = time.perf_counter()
        for images, labels in islice(batches, steps):
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        return steps * BATCH / (time.perf_counter() - start)

    return rate


def this_engine(data: ArrayData, model: torch.nn.Module, compiled: bool) -> Rate:
    engine = Engine(EngineSettings(accelerator="cpu", channels_last=True, compile=compiled))
    loader = data.training(engine.loader_options(BATCH), seed=0)
    trainer = Trainer(engine, engine.prepare(model), loader, RECIPES["tickets"])
    steps_to_come: Iterator[Tensor] = trainer.steps()

    def rate(steps: int) -> float:
        start = time.perf_counter()
        for _ in islice(steps_to_come, steps):
            pass
        return steps * BATCH / (time.perf_counter() - start)

    return rate


def input_alone(data: ArrayData) -> Rate:
    engine = Engine(EngineSettings(accelerator="cpu", channels_last=True))
    loader = data.training(engine.loader_options(BATCH), seed=0)

    def rate(steps: int) -> float:
        start = time.perf_counter()
        for _ in islice(loader.epoch(0), steps):
            pass
        return steps * BATCH / (time.perf_counter() - start)

    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("results/throughput.json"))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12, help="steps of each way in a round")
    arguments = parser.parse_args()
    task = load_task("cifar10/resnet20", arguments.data)
    data = task.data
    assert isinstance(data, ArrayData)
    ways = {
        "usual way": usual_way(data, task.build()),
        "engine": this_engine(data, task.build(), compiled=False),
        "engine, compiled": this_engine(data, task.build(), compiled=True),
        "input alone": input_alone(data),
    }
    for rate in ways.values():
        rate(2)  # warm up; compiles
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, rate in ways.items():
            rates[name].append(rate(arguments.steps))
    base = rates["usual way"]
    results = {
        name: {
            "images a second": statistics.median(values),
            "against the usual way": statistics.median(
                v / b for v, b in zip(values, base, strict=True)
            ),
        }
        for name, values in rates.items()
    }
    fastest = max(r["images a second"] for name, r in results.items() if name != "input alone")
    results["input alone"]["against what the network consumes"] = (
        results["input alone"]["images a second"] / fastest
    )
    rows = [[n, *(f"{v:,.2f}" for v in list(r.values())[:2])] for n, r in results.items()]
    print(text_table(["", "images a second", "against the usual way"], rows))
    write_atomically(arguments.out, json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
