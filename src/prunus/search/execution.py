"""What the stages of all commands share: the network, its data, its results, and their folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from prunus.errors import SettingError
from prunus.gates import gated_parameters, hard
from prunus.masks import Mask
from prunus.methods import Evaluate, Method
from prunus.search.settings import RunSettings
from prunus.search.settings_file import write_settings
from prunus.tasks import Recipe, Task
from prunus.tasks.data import Loader, SplitName
from prunus.tasks.data.sharding import seed_for
from prunus.ticket import Ticket
from prunus.training import Engine, Run, Trainer
from prunus.training.progress import Progress
from prunus.training.randomness import seed_everything
from prunus.training.trackers import make_trackers
from prunus_runtime.atomic import write_atomically

_EVALUATION_BATCHES = 4
"""How many times more images fit when there are no gradients."""


class Execution:
    """One run being executed. `results` is what `results.json` holds."""

    def __init__(self, settings: RunSettings, task: Task, *, quiet: bool = False) -> None:
        self.settings, self.task, self.folder = settings, task, settings.folder
        self._quiet = quiet
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
        options = engine.loader_options(_EVALUATION_BATCHES * settings.recipe.batch_size)
        self._held_out: dict[SplitName, Loader] = {
            split: task.data.evaluation(split, options) for split in ("validation", "test")
        }

    def network(self, seed: int | None = None) -> nn.Module:
        """A new network on its device, the same in every process; `seed`: not from the run's."""
        seed_everything(self.settings.seed if seed is None else seed)
        model = self.engine.prepare(self.task.build())
        seed_everything(seed_for(self.settings.seed, self.engine.rank))
        return model

    def run(self, epochs: int) -> Run:
        """The run in its folder; `epochs` counts all its phases, for the progress bar."""
        steps = epochs * self.steps_per_epoch
        return Run(
            self.folder,
            self.engine,
            total_steps=steps,
            checkpoint_every=self.settings.checkpoint_every,
            progress=Progress(steps, quiet=self._quiet or not self.engine.is_main),
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
    ) -> None:
        """Train one phase."""
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
            with hard(model):
                numbers = {"density": density(model), **self._accuracy(module, "validation")}
            if method is not None:
                stats = method.stats()
                numbers["soft_density"] = stats.soft_density
                numbers["in_transition"] = stats.in_transition
            return numbers

        run.train(trainer, phase, name, measure)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Density and accuracies of a model with its hard mask."""
        with hard(model):
            return {
                "density": density(model),
                **self._accuracy(model, "validation"),
                **self._accuracy(model, "test"),
            }

    def check_can_judge(self, method: Method) -> None:
        """Raise, before hours are spent, if a method needs held-out images and there are none."""
        if method.needs_evaluate and not len(self._held_out["validation"]):
            raise SettingError(
                f"the method {method.name} compares masks on validation images, and this task "
                "holds out none: set data.validation_images"
            )

    def judge(self, model: nn.Module) -> Evaluate | None:
        """How good the model is on the validation images; None if the task holds out none."""
        if not len(self._held_out["validation"]):
            return None
        return lambda: self._accuracy(model, "validation")["validation_accuracy"]

    def _accuracy(self, module: nn.Module, split: SplitName) -> dict[str, float]:
        loader = self._held_out[split]
        if not len(loader):  # a task may hold out nothing
            return {}
        return {f"{split}_accuracy": self.engine.accuracy(module, loader)}

    def record(
        self, stage: str, epochs: int, numbers: dict[str, float], ticket: Ticket | None = None
    ) -> None:
        """Write down what a stage found; a stage of the same name is replaced."""
        entry: dict[str, Any] = {"stage": stage, "epochs": epochs, **numbers}
        if ticket is not None:
            path = Path("tickets") / f"{stage.replace(' ', '-')}.safetensors"
            entry["layers"] = {layer.name: layer.density for layer in ticket.mask.layers}
            entry["ticket"] = str(path)
            if self.engine.is_main:
                ticket.save(self.folder / path)
        others = [other for other in self.results["stages"] if other["stage"] != stage]
        self.results["stages"] = [*others, entry]
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


def density(model: nn.Module) -> float:
    """Of the hard mask; a model without gates keeps everything."""
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
