"""The measurements behind two defaults of Continuous Sparsification: `mask_scale` and `score_lr`.

Searches tickets on the demo's task with every combination of both and of two mask inits, re-trains
them from `w^(k)`, and puts IMP at the same densities beside them. Mean and deviation over seeds.

Run `python benchmarks/cs_defaults.py`: about fifteen minutes on one core.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.progress import track

from prunus.demo.experiment import Experiment, Result
from prunus.demo.settings import Settings
from prunus.methods import ContinuousSparsification
from prunus.report.summary import Spread
from prunus.tables import text_table
from prunus_runtime.atomic import write_atomically

MASK_SCALES = ("init", "none")
SCORE_LR_FACTORS = (0.3, 1.0, 3.0)
MASK_INITS = (-0.05, -0.2)


class Scaled(ContinuousSparsification):
    """CS whose automatic score learning rate is multiplied by `factor`."""

    factor = 1.0

    def param_groups(self, lr: float, **options: float) -> list[dict[str, object]]:  # type: ignore[override]
        weights, scores = super().param_groups(lr, **options)
        return [weights, {**scores, "lr": scores["lr"] * self.factor}]


def search(
    experiment: Experiment, scale: str, factor: float, mask_init: float, seed: int
) -> Result:
    method = Scaled(
        experiment.network(seed),
        steps=experiment.steps,
        mask_init=mask_init,
        mask_scale=scale,  # type: ignore[arg-type]
        rewind_step=experiment.rewind_step,
    )
    method.factor = factor
    result, _ = experiment.search(method, seed, mask_init)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/cs_defaults.json"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=Settings().epochs)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings(seeds=tuple(range(arguments.seeds)), epochs=arguments.epochs)
    rows = []
    with TemporaryDirectory() as folder:
        experiment = Experiment(Path(folder), settings, lambda *_: None)
        combinations = list(itertools.product(MASK_SCALES, SCORE_LR_FACTORS, MASK_INITS))
        for scale, factor, mask_init in track(combinations, "searching"):
            found = [search(experiment, scale, factor, mask_init, s) for s in settings.seeds]
            densities = [result.density for result in found]
            imp = [
                experiment.imp(seed, mask_init, density)[0].accuracy
                for seed, density in zip(settings.seeds, densities, strict=True)
            ]
            rows.append({
                "mask_scale": scale,
                "score_lr factor": factor,
                "mask_init": mask_init,
                "kept %": str(Spread.of(densities)),
                "searched %": str(Spread.of([r.search_accuracy or 0.0 for r in found])),
                "re-trained %": str(Spread.of([r.accuracy for r in found])),
                "IMP re-trained %": str(Spread.of(imp)),
            })  # fmt: skip
    print(text_table(list(rows[0]), [[str(v) for v in row.values()] for row in rows]))
    write_atomically(arguments.out, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
