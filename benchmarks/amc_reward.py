"""How much AMC's reward tells: accuracy right after the cut, on digits, beside two plain cuts.

python benchmarks/amc_reward.py > results/amc_reward.json     (about three minutes on one core)
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile

import torch

from prunus import AMC, Mask
from prunus.methods import Evaluate
from prunus.methods.ranking import keep_density, magnitudes
from prunus.search import execute, resolve

DENSITIES = (0.3, 0.1, 0.03)
SEEDS = (0, 1, 2)


class Comparison:
    """Stands in for AMC's `on_commit`: also tries the same density without an agent."""

    def __init__(self) -> None:
        self.search = AMC.on_commit
        self.found: dict[str, float] = {}

    def commit(self, amc: AMC, evaluate: Evaluate | None) -> Mask:
        ranks = magnitudes(amc.model)
        whole = {name: torch.ones_like(rank, dtype=torch.bool) for name, rank in ranks.items()}
        for name, per_layer in (("uniform", True), ("global", False)):
            mask = keep_density(ranks, whole, amc.target_density, per_layer=per_layer)
            self.found[f"{name}_validation"] = amc.try_mask(mask, evaluate)
        return self.search(amc, evaluate)


def measure(density: float, seed: int, folder: str) -> dict[str, float]:
    """One run of `prunus prune`: accuracies after the cut, and after fine-tuning."""
    comparison = Comparison()
    AMC.on_commit = lambda amc, evaluate: comparison.commit(amc, evaluate)  # type: ignore
    try:
        settings, task = resolve(
            "prune",
            {
                "task": "digits/digits_convnet",
                "method": {"name": "amc", "target_density": density},
                "engine": {"accelerator": "cpu"},
                "seed": seed,
                "out": folder,
            },
        )
        cut, tuned = execute(settings, task)["stages"]
    finally:
        AMC.on_commit = comparison.search  # type: ignore
    return {
        "target_density": density,
        "density": cut["density"],
        "seed": seed,
        **comparison.found,
        "amc_validation": cut["validation_accuracy"],
        "amc_test": cut["test_accuracy"],
        "amc_fine_tuned_test": tuned["test_accuracy"],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        results = [measure(density, seed, folder) for density in DENSITIES for seed in SEEDS]
    print(json.dumps(results, indent=1))
