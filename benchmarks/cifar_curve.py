"""The first epochs of ResNet-20 on the real CIFAR-10, recorded.

Run `python benchmarks/cifar_curve.py --data data` (the folder that has `cifar-10-batches-py`);
about two minutes an epoch on two cores. Interrupted, it goes on where it was.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from prunus.search import execute, resolve
from prunus_runtime.atomic import write_atomically


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="data")
    parser.add_argument("--out", type=Path, default=Path("results/cifar_curve.json"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--runs", default="runs", help="folder for the run itself")
    arguments = parser.parse_args()
    settings, task = resolve(
        "train",
        {
            "task": "cifar10/resnet20",
            "data_root": arguments.data,
            "out": arguments.runs,
            # A constant learning rate: the recipe's drops would move with the number of epochs.
            "recipe": {"epochs": arguments.epochs, "drops": []},
            "engine": {"channels_last": True},
        },
    )
    results = execute(settings, task)
    lines = (settings.folder / "metrics.jsonl").read_text().splitlines()
    content = {
        "metrics": [json.loads(line) for line in lines],
        "test_accuracy": results["stages"][-1]["test_accuracy"],
    }
    write_atomically(arguments.out, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
