"""What the stages of all commands share: the network, its data, its results, and their folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from prunus.files import write_atomically
from prunus.gates import gated_parameters, hard
from prunus.masks import Mask
from prunus.methods import Method
from prunus.search.settings import RunSettings
from prunus.search.settings_file import write_settings
from prunus.tasks import Recipe, Task
from prunus.tasks.data import Loader, SplitName
from prunus.tasks.data.sharding import seed_for
from prunus.ticket import Ticket
from prunus.training import Engine, Run, Trainer
from prunus.training.randomness import seed_everything
from prunus.training.trackers import make_trackers

_EVALUATION_BATCH = 1024


class Execution:
    """One run being executed. `results` is what `results.json` holds."""

    def __init__(self, settings: RunSettings, task: Task) -> None:
        self.settings, self.task, self.folder = settings, task, settings.folder
        self.results: dict[str, Any] = read_results(self.folder) or {
            "command": settings.command,
            "task": settings.task,
            "label": settings.label,
            "seed": settings.seed,
            "finished": False,
            "stages": [],
        }
        trackers = make_trackers(settings.trackers, self.folder)
        self.engine = engine = Engine(settings.engine, trackers)
        if engine.is_main:
            write_settings(self.folder / "settings.yaml", settings)
        for tracker in trackers:
            tracker.log_hyperparams(_flat(settings.model_dump(mode="json")))
        options = engine.loader_options(settings.recipe.batch_size)
        self.loader: Loader = task.data.training(options, seed=settings.seed)
        self.steps_per_epoch = len(self.loader)

    def network(self) -> nn.Module:
        """A new network on its device, the same in every process."""
        seed_everything(self.settings.seed)
        model = self.engine.prepare(self.task.build())
        seed_everything(seed_for(self.settings.seed, self.engine.rank))
        return model

    def run(self, epochs: int) -> Run:
        """The run in its folder; `epochs` counts all its phases, for the progress bar."""
        every = self.settings.checkpoint_every
        return Run(
            self.folder,
            self.engine,
            total_steps=epochs * self.steps_per_epoch,
            checkpoint_every=every,
        )

    def fit(
        self,
        run: Run,
        phase: int,
        name: str,
        model: nn.Module,
        recipe: Recipe,
        *,
        first_epoch: int = 0,
        method: Method | None = None,
        group_options: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Train one phase; returns the accuracies and the density of the hard mask at its end."""
        trainer = Trainer(
            self.engine,
            model,
            self.loader,
            recipe,
            method=method,
            group_options=group_options,
            first_epoch=first_epoch,
        )

        def measure(module: nn.Module) -> dict[str, float]:
            numbers = self._accuracy(module, model, "validation")
            if method is not None:
                stats = method.stats()
                numbers["soft_density"] = stats.soft_density
                numbers["in_transition"] = stats.in_transition
            return {"density": _density(model), **numbers}

        run.train(trainer, phase, name, measure)
        return {
            "stage": name,
            "epochs": recipe.epochs,
            "density": _density(model),
            **self._accuracy(trainer.module, model, "validation"),
            **self._accuracy(trainer.module, model, "test"),
        }

    def _accuracy(self, module: nn.Module, model: nn.Module, split: SplitName) -> dict[str, float]:
        options = self.engine.loader_options(self.engine.world_size * _EVALUATION_BATCH)
        loader = self.task.data.evaluation(split, options)
        if not len(loader):  # a task may hold out nothing
            return {}
        with hard(model):
            return {f"{split}_accuracy": self.engine.accuracy(module, loader)}

    def record(self, stage: dict[str, Any], ticket: Ticket | None = None) -> None:
        """Write down what a stage found; a stage of the same name is replaced."""
        if ticket is not None:
            path = Path("tickets") / f"{stage['stage'].replace(' ', '-')}.safetensors"
            layers = {layer.name: layer.density for layer in ticket.mask.layers}
            density = ticket.mask.density if layers else 1.0
            stage = {**stage, "density": density, "layers": layers, "ticket": str(path)}
            if self.engine.is_main:
                ticket.save(self.folder / path)
        others = [s for s in self.results["stages"] if s["stage"] != stage["stage"]]
        self.results["stages"] = [*others, stage]
        self._write()

    def finish(self) -> dict[str, Any]:
        """Mark the run as finished."""
        self.results["finished"] = True
        self._write()
        return self.results

    def _write(self) -> None:
        if self.engine.is_main:
            write_atomically(self.folder / "results.json", json.dumps(self.results, indent=2))


def read_results(folder: Path) -> dict[str, Any] | None:
    """The results of a run so far; None if there are none."""
    path = folder / "results.json"
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def _density(model: nn.Module) -> float:
    return Mask.of(model).density if gated_parameters(model) else 1.0


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as `recipe.epochs`, for trackers."""
    result: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            result |= _flat(value, f"{prefix}{name}.")
        else:
            result[prefix + name] = value if isinstance(value, int | float) else str(value)
    return result
