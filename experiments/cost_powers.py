"""By which power of its cost should a score be measured, where the budget is of multiply-adds?

    python experiments/cost_powers.py --data DIR --runs runs/cost-powers

A gate stays open where `s > tau * c**p`, with `c` the multiply-adds of one of its weights. 5 % of
the multiply-adds, 6 epochs of search and 2 of fine-tuning (in bfloat16), two seeds that are
reported nowhere else. ResNet-20, CIFAR-10 averaged to 8x8 pixels: a weight of its first layers
costs 16 times what one of its last layers does. VGG-16 with a quarter of its channels, 16x16
pixels: 256 times. The end writes `results/cost-powers.json`. Runs that are finished are not done
again.
"""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from prunus.cli import app
from prunus.files import write_atomically
from prunus.methods.common import round_budgets
from prunus.methods.common.budget import competition_of

RESULTS = Path(__file__).parents[1] / "results" / "cost-powers.json"
POWERS = (0.0, 0.5, 1.0, 1.5)
SEEDS = (9, 10)
NETWORKS: dict[str, dict[str, Any]] = {
    "cifar10/resnet20": {"data.image_size": 8},
    "cifar10/vgg16-quarter": {"data.image_size": 16, "recipe.lr": 0.05},
}
SETTINGS = {
    "recipe.commit_epoch": 6,
    "recipe.fine_tune_lr": "rewound",
    "engine.channels_last": True,
    "engine.precision": "bf16",
}


def run(task: str, power: float, seed: int, data: str, folder: Path) -> dict[str, Any]:
    round_budgets.competition_of = partial(competition_of, exponent=power)
    command = ["prune", "--task", task, "--method", "cs", "--target-macs", "0.05"]
    command += ["--recipe", "modern", "--epochs", "8", "--seed", str(seed), "--threads", "1"]
    for name, value in (SETTINGS | NETWORKS[task]).items():
        command += ["--set", f"{name}={value}"]
    with suppress(SystemExit):
        app([*command, "--data", data, "--out", str(folder)])
    [run] = folder.glob("*/results.json")
    *_, tuned = json.loads(run.read_text())["stages"]
    origin = json.loads((run.parent / "origin.json").read_text())
    scores = {kind: tuned[kind]["accuracy"] for kind in ("validation", "test")}
    kept = {name: tuned[name] for name in ("density", "kept_macs")}
    return {"task": task, "power": power, "seed": seed, **kept, **scores, "origin": origin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--data", default="data")
    parser.add_argument("--runs", type=Path, default=Path("runs/cost-powers"))
    given = parser.parse_args()
    found = [
        run(task, power, seed, given.data, given.runs / f"{Path(task).name}-{power}-{seed}")
        for task, seed, power in product(NETWORKS, SEEDS, POWERS)
    ]
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
