"""When should the density of CS with a budget reach its target? One run for each answer.

    python experiments/settling.py --data DIR --runs runs/settling

ResNet-20, CIFAR-10 averaged to 16x16 pixels, 5 %, 20 epochs of search and 4 of fine-tuning as in
`tuning.yaml` (in bfloat16), seed 9, which is reported nowhere else. The end writes
`results/settling.json`. Runs that are finished are not done again.
"""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from prunus.cli import app
from prunus.files import write_atomically
from prunus.methods.common import round_budgets

RESULTS = Path(__file__).parents[1] / "results" / "settling.json"
SETTLED = (0.65, 0.8, 1.0)
"""Parts of the round after which the density stands at its target."""
SETTINGS = {
    "recipe.commit_epoch": 20,
    "recipe.fine_tune_lr": "rewound",
    "data.image_size": 16,
    "engine.channels_last": True,
    "engine.precision": "bf16",
}


def run(settled: float, data: str, folder: Path) -> dict[str, Any]:
    round_budgets._SETTLED = settled
    command = ["prune", "--task", "cifar10/resnet20", "--method", "cs", "--target-density", "0.05"]
    command += ["--recipe", "modern", "--epochs", "24", "--seed", "9", "--threads", "1"]
    for name, value in SETTINGS.items():
        command += ["--set", f"{name}={value}"]
    with suppress(SystemExit):
        app([*command, "--data", data, "--out", str(folder)])
    [run] = folder.glob("*/results.json")
    *_, tuned = json.loads(run.read_text())["stages"]
    *_, last = map(json.loads, (run.parent / "metrics.jsonl").read_text().splitlines())
    origin = json.loads((run.parent / "origin.json").read_text())
    scores = {kind: tuned[kind]["accuracy"] for kind in ("validation", "test")}
    return {"settled": settled, "training_loss": last["loss"], **scores, "origin": origin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--data", default="data")
    parser.add_argument("--runs", type=Path, default=Path("runs/settling"))
    given = parser.parse_args()
    found = [run(settled, given.data, given.runs / str(settled)) for settled in SETTLED]
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
