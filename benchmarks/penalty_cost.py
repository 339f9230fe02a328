"""What `penalty_cost="macs"` does: weights and multiply-adds kept by CS, on the digits.

Each search is one run of CS with the same penalty, once counted in weights and once in
multiply-adds; then the mask is fixed and fine-tuned. Run: `python benchmarks/penalty_cost.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import torch

from prunus.cli.runs import Common, prune
from prunus.deployment import deploy
from prunus.deployment.finding import accuracy, example, find

RESULTS = Path(__file__).parent.parent / "results" / "penalty_cost.json"
PENALTIES = (1e-5, 1e-4)
SEEDS = (0, 1)


def measured(penalty: float, cost: str, seed: int, out: Path) -> dict[str, Any]:
    folder = out / f"{penalty:g}-{cost}-{seed}"
    settings = [f"method.penalty={penalty}", f"method.penalty_cost={cost}"]
    settings.append("engine.accelerator=cpu")
    prune(
        common=Common(task="digits/digits_convnet", seed=seed, out=folder, set_=settings),
        mask_init=0.0,
    )
    found = find(next(folder.iterdir()), None, None)
    model = found.task.build()
    images = example(found.task, 16)
    report = deploy(model, found.ticket, images, weights="ticket", threads=1).report(speed=False)
    assert report.before is not None
    found.ticket.apply(model).eval()
    return {
        "penalty": penalty,
        "cost": cost,
        "seed": seed,
        "kept_weights": report.before.kept_weights / report.before.weights,
        "kept_macs": report.before.kept_macs / report.before.macs,
        "test_accuracy": accuracy(found.task, model)["test"],
    }


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    with TemporaryDirectory() as folder:
        for penalty in PENALTIES:
            for cost in ("weights", "macs"):
                own = [measured(penalty, cost, seed, Path(folder)) for seed in SEEDS]
                rows += own
                names = ("kept_weights", "kept_macs", "test_accuracy")
                values = "  ".join(f"{n} {100 * mean(r[n] for r in own):.2f}%" for n in names)
                print(f"penalty {penalty:g} in {cost}: {values}", flush=True)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
