"""Run folders with made-up numbers that look like real ones. Nothing is trained."""

from pathlib import Path

import torch
import yaml

from prunus import Manifest, Mask, Ticket
from prunus.runs.results import (
    EpochMetrics,
    RunResults,
    StageResult,
    read_results,
    ticket_path,
    write_results,
)
from prunus.tasks.metrics import ACCURACY, MetricInfo

SHAPES = {
    "conv1.weight": (8, 3, 3, 3),
    "layer1.0.conv1.weight": (8, 8, 3, 3),
    "layer1.0.conv2.weight": (8, 8, 3, 3),
    "layer2.0.conv1.weight": (16, 8, 3, 3),
    "layer2.0.conv2.weight": (16, 16, 3, 3),
}
EPOCHS = 4
NATS = MetricInfo("loss", higher_is_better=False, unit="nats")


class Runs:
    """Writes run folders as `prunus train`, `search`, `prune` and `retrain` do.

    Values are those of `metric` on test data.
    """

    def __init__(
        self, root, task="cifar10/resnet20", shapes=SHAPES, epochs=EPOCHS, metric=ACCURACY
    ):
        self.root, self.task, self.shapes, self.epochs = Path(root), task, shapes, epochs
        self.metric = metric

    def train(self, seed, value):
        stage = self.stage("training", 1.0, value)
        return self.write("train", f"train-{seed}", seed, [stage])

    def search(self, method, seed, rounds, *, finished=True, **settings):
        """`rounds` has the density and value of each round."""
        name = "-".join([method, *map(str, settings.values()), str(seed)])
        stages = [
            self.stage(f"round {i}", density, value, ticket=True)
            for i, (density, value) in enumerate(rounds, 1)
        ]
        folder = self.write(
            "search", name, seed, stages, finished, method={"name": method, **settings},
            rounds=len(rounds), rewind_epoch=2,
        )  # fmt: skip
        for stage in stages:
            self.ticket(folder / stage.ticket, stage.density, seed, method)
        return folder

    def prune(self, method, seed, density, searched, tuned=None, **settings):
        stages = [self.stage("search", density, searched)]
        if tuned is not None:
            stages.append(self.stage("fine-tuning", density, tuned, ticket=True))
        folder = self.write(
            "prune", f"{method}-prune-{density}-{seed}", seed, stages, tuned is not None,
            method={"name": method, **settings},
        )  # fmt: skip
        if tuned is not None:
            self.ticket(folder / stages[-1].ticket, density, seed, method)
        return folder

    def retrain(self, source, number, value, *, task=None, control=None, name=None):
        """Re-train the ticket of round `number` of the run in the folder `source`."""
        results = read_results(source)
        density = results.stages[number - 1].density
        stage = self.stage("re-training", density, value, ticket=True)
        name = name or f"retrain-{source.name}-{number}-{task or ''}-{control or ''}".replace(
            "/", "-"
        )
        extra = {"control": control} if control else {}
        ticket = source / ticket_path(f"round {number}")
        return self.write(
            "retrain", name, results.seed, [stage], task=task, results=extra,
            ticket=str(ticket), **extra,
        )  # fmt: skip

    def stage(self, name, density, value, *, ticket=False):
        return StageResult(
            stage=name,
            epochs=self.epochs,
            density=density,
            validation={self.metric.name: value - 0.01},
            test={self.metric.name: value},
            layers=dict.fromkeys(self.shapes, density) if ticket else {},
            ticket=str(ticket_path(name)) if ticket else None,
        )

    def write(
        self, command, name, seed, stages, finished=True, *, task=None, results=None, **settings
    ):
        folder = self.root / name
        folder.mkdir(parents=True)
        common = {"command": command, "task": task or self.task, "seed": seed}
        settings = {**common, "recipe": {"epochs": self.epochs, "batch_size": 128}, **settings}
        (folder / "settings.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
        content = RunResults(
            **common, label=command, metrics=(self.metric,), stages=tuple(stages),
            finished=finished, **(results or {}),
        )  # fmt: skip
        write_results(folder, content)
        with (folder / "metrics.jsonl").open("w") as file:
            for stage in stages:
                for epoch in range(1, self.epochs + 1):
                    file.write(self.metrics(stage, epoch).model_dump_json() + "\n")
        return folder

    def metrics(self, stage, epoch):
        part = epoch / self.epochs
        value = stage.validation[self.metric.name]
        return EpochMetrics(
            stage=stage.stage,
            epoch=epoch,
            step=10 * epoch,
            lr=0.1,
            loss=2.3 * (1 - part) ** 2 + 0.05,
            density=stage.density * part,
            validation={self.metric.name: value * part**0.2},
        )

    def ticket(self, path, density, seed, method):
        generator = torch.Generator().manual_seed(seed)
        masks = {
            name: torch.rand(shape, generator=generator) < min(1.0, density * 2 / (1 + i / 2))
            for i, (name, shape) in enumerate(self.shapes.items())
        }
        weights = {name: torch.ones(shape) for name, shape in self.shapes.items()}
        manifest = Manifest(task=self.task, method=method, seed=seed)
        Ticket(Mask(masks), weights, manifest).save(path)


def paper_like(root, task="cifar10/resnet20", *, seeds=(0, 1, 2), inits=(0.1, 0.0, -0.1, -0.2),
               rounds=5, imp_rounds=12, **options):  # fmt: skip
    """A folder like that of the paper's figure 1."""
    runs = Runs(root, task, **options)
    for seed in seeds:
        noise = 0.002 * (seed - 1)
        runs.train(seed, 0.905 + noise)
        for init in inits:
            found = [
                (0.45 * 0.62**n * 10 ** (3 * init), 0.918 + noise - 0.004 * max(0, n - 3)
                 - 0.02 * max(0.0, -init - 0.05) * n)
                for n in range(rounds)
            ]  # fmt: skip
            folder = runs.search("cs", seed, [(d, a - 0.01) for d, a in found], mask_init=init)
            for number, (_, accuracy) in enumerate(found, 1):
                runs.retrain(folder, number, accuracy)
        found = [(0.8**n, 0.91 + noise - 0.0009 * n**1.6) for n in range(1, imp_rounds + 1)]
        folder = runs.search("imp", seed, [(d, a - 0.3) for d, a in found], rate=0.2)
        for number, (_, accuracy) in enumerate(found, 1):
            runs.retrain(folder, number, accuracy)
    return runs
