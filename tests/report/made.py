"""Run folders made by code, with numbers that look like real ones. Nothing is trained."""

import json
from pathlib import Path

import torch
import yaml

from prunus import Manifest, Mask, Ticket

SHAPES = {
    "conv1.weight": (8, 3, 3, 3),
    "layer1.0.conv1.weight": (8, 8, 3, 3),
    "layer1.0.conv2.weight": (8, 8, 3, 3),
    "layer2.0.conv1.weight": (16, 8, 3, 3),
    "layer2.0.conv2.weight": (16, 16, 3, 3),
}
EPOCHS = 4


class Runs:
    """Writes run folders as `prunus train`, `search`, `prune` and `retrain` do."""

    def __init__(self, root, task="cifar10/resnet20", shapes=SHAPES, epochs=EPOCHS):
        self.root, self.task, self.shapes, self.epochs = Path(root), task, shapes, epochs

    def train(self, seed, accuracy):
        stage = self.stage("training", 1.0, accuracy)
        return self.write("train", f"train-{seed}", seed, [stage])

    def search(self, method, seed, rounds, *, finished=True, **settings):
        """`rounds`: density and accuracy of each."""
        name = "-".join([method, *map(str, settings.values()), str(seed)])
        stages = [
            self.stage(f"round {i}", density, accuracy, f"tickets/round-{i}.safetensors")
            for i, (density, accuracy) in enumerate(rounds, 1)
        ]
        folder = self.write(
            "search", name, seed, stages, finished, method={"name": method, **settings},
            rounds=len(rounds), rewind_epoch=2,
        )  # fmt: skip
        for stage in stages:
            self.ticket(folder / stage["ticket"], stage["density"], seed, method)
        return folder

    def prune(self, method, seed, density, searched, tuned=None, **settings):
        stages = [self.stage("search", density, searched)]
        if tuned is not None:
            ticket = "tickets/fine-tuning.safetensors"
            stages.append(self.stage("fine-tuning", density, tuned, ticket))
        folder = self.write(
            "prune", f"{method}-prune-{density}-{seed}", seed, stages, tuned is not None,
            method={"name": method, **settings},
        )  # fmt: skip
        if tuned is not None:
            self.ticket(folder / ticket, density, seed, method)
        return folder

    def retrain(self, source, number, accuracy, *, task=None, control=None, name=None):
        """Of the ticket of round `number` of the run in the folder `source`."""
        results = json.loads((source / "results.json").read_text())
        density = results["stages"][number - 1]["density"]
        stage = self.stage("re-training", density, accuracy, "tickets/re-training.safetensors")
        name = name or f"retrain-{source.name}-{number}-{task or ''}-{control or ''}".replace(
            "/", "-"
        )
        extra = {"control": control} if control else {}
        ticket = source / "tickets" / f"round-{number}.safetensors"
        return self.write(
            "retrain", name, results["seed"], [stage], task=task, results=extra,
            ticket=str(ticket), **extra,
        )  # fmt: skip

    def stage(self, name, density, accuracy, ticket=None):
        entry = {
            "stage": name,
            "epochs": self.epochs,
            "density": density,
            "validation_accuracy": accuracy - 0.01,
            "test_accuracy": accuracy,
        }
        if ticket:
            entry |= {"layers": dict.fromkeys(self.shapes, density), "ticket": ticket}
        return entry

    def write(
        self, command, name, seed, stages, finished=True, *, task=None, results=None, **settings
    ):
        folder = self.root / name
        folder.mkdir(parents=True)
        common = {"command": command, "task": task or self.task, "seed": seed}
        settings = {**common, "recipe": {"epochs": self.epochs, "batch_size": 128}, **settings}
        (folder / "settings.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
        content = {**common, "finished": finished, "stages": stages, **(results or {})}
        (folder / "results.json").write_text(json.dumps(content))
        with (folder / "metrics.jsonl").open("w") as file:
            for stage in stages:
                for epoch in range(1, self.epochs + 1):
                    file.write(json.dumps(self.metrics(stage, epoch)) + "\n")
        return folder

    def metrics(self, stage, epoch):
        part = epoch / self.epochs
        return {
            "phase": stage["stage"],
            "epoch": epoch,
            "loss": 2.3 * (1 - part) ** 2 + 0.05,
            "density": stage["density"] * part,
            "validation_accuracy": stage["validation_accuracy"] * part**0.2,
        }

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
