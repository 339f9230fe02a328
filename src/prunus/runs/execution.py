"""What the stages of all commands share: the network, its data, its results, and their folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from typing import Any

from torch import nn

from prunus.errors import SettingError
from prunus.gates import gated_parameters, hard
from prunus.masks import Mask
from prunus.methods import Evaluate, Method
from prunus.methods.common.budgeted import Counting
from prunus.randomness import seed_everything, seed_for
from prunus.runs.origin import Stopwatch
from prunus.runs.results import (
    RESULTS,
    EpochMetrics,
    RunResults,
    StageResult,
    Values,
    read_results,
    ticket_path,
    write_results,
)
from prunus.runs.settings import RunSettings
from prunus.runs.settings_file import flattened, write_settings
from prunus.runs.size import Size
from prunus.tables import percent
from prunus.tasks import MetricInfo, Recipe, Task
from prunus.tasks.data import Loader, SplitName
from prunus.tasks.metrics import SAMPLES, Metric, accuracy, samples
from prunus.tickets.ticket import Ticket
from prunus.training import Engine, Run, Stage, Trainer
from prunus.training.health import DivergedError
from prunus.training.progress import RunProgress
from prunus.training.trackers import make_trackers

_EVALUATION_BATCH = 4
"""How many times more samples than in training: there is room, because there are no gradients."""


class Execution:
    """One run being executed. `results` is what `results.json` holds."""

    def __init__(self, settings: RunSettings, task: Task, *, quiet: bool = False) -> None:
        self.settings, self.task, self.folder = settings, task, settings.folder
        self._quiet = quiet
        self.results = read_results(self.folder) or RunResults(
            command=settings.command,
            task=settings.task,
            label=settings.label,
            seed=settings.seed,
            metrics=tuple(metric.info for metric in task.metrics),
        )
        self._trackers = make_trackers(settings.trackers, self.folder)
        self.engine = engine = Engine(settings.engine, self._trackers)
        self._stopwatch = Stopwatch(self.folder, engine.device)
        options = engine.loader_options(settings.recipe.batch_size)
        self.loader: Loader = task.data.training(options, seed=settings.seed)
        self.steps_per_epoch = len(self.loader)
        options = engine.loader_options(_EVALUATION_BATCH * settings.recipe.batch_size)
        self._held_out: dict[SplitName, Loader] = {
            split: task.data.evaluation(split, options) for split in ("validation", "test")
        }

    def network(self, seed: int | None = None) -> nn.Module:
        """A new network on its device, the same in every process; by default of the run's seed."""
        seed_everything(self.settings.seed if seed is None else seed)
        model = self.engine.prepare(self.task.build())
        seed_everything(seed_for(self.settings.seed, self.engine.rank))
        return model

    @contextmanager
    def resumed(
        self, model: nn.Module, method: Method | None = None, *, epochs: int
    ) -> Iterator[int]:
        """Within this context, stages may `train`. Sets model and method to where the run was, and
        gives the number of the stage to begin with. `epochs` are those of all stages.

        Nothing is written before: a command that is refused leaves no folder."""
        if self.engine.is_main:
            write_settings(self.folder / "settings.yaml", self.settings)
        settings = flattened(self.settings.model_dump(mode="json"))
        for tracker in self._trackers:
            tracker.log_hyperparams({name: _plain(value) for name, value in settings.items()})
        steps = epochs * self.steps_per_epoch
        self._run = Run(
            self.folder,
            self.engine,
            total_steps=steps,
            checkpoint_every=self.settings.checkpoint_every,
            progress=RunProgress(steps, quiet=self._quiet or not self.engine.is_main),
        )
        with self._run:
            first = self._run.restore(model, method)
            if first > len(self.results.stages):
                raise SettingError(
                    f"{self.folder / RESULTS} lacks what the first {first} stages of the run "
                    "found. Move the folder away, and the same command does the run again"
                )
            yield first

    def train(
        self,
        stage: Stage,
        model: nn.Module,
        recipe: Recipe,
        *,
        first_epoch: int = 0,
        method: Method | None = None,
        group_options: dict[str, Any] | None = None,
    ) -> None:
        """Train one stage, with a line of metrics after each epoch."""
        trainer = Trainer(
            self.engine,
            model,
            self.loader,
            recipe,
            loss=self.task.loss_for(recipe),
            inputs=self.task.inputs,
            method=method,
            group_options=group_options,
            first_epoch=first_epoch,
        )

        def note() -> None:
            with trainer.averaged(), hard(model):
                validation = self._measure(trainer.module, "validation")
                kept = density(model)
            stats = method.stats() if method is not None else None
            line = EpochMetrics(
                stage=stage.name,
                epoch=trainer.epoch,
                step=self._run.steps_before + trainer.step,
                lr=trainer.optimizer.param_groups[0]["lr"],
                loss=trainer.mean_loss(),
                density=kept,
                validation=validation,
                soft_density=stats.soft_density if stats else None,
                in_transition=stats.in_transition if stats else None,
            )
            numbers = {**line.numbers(), "stage": float(stage.number)}
            self._run.note(line.as_line(), numbers, _as_text(line, recipe, self.results.metric))

        self._run.train(trainer, stage, note)

    def evaluate(self, stage: Stage, epochs: int, model: nn.Module) -> StageResult:
        """What a stage found: density and metrics of the model with its hard mask."""
        counting = (samples,) if accuracy in self.task.metrics else ()
        with hard(model):
            size = Size(model)
            found = {split: self._measure(model, split, counting) for split in self._held_out}
            counts = {split: v.pop(SAMPLES) for split, v in found.items() if SAMPLES in v}
            return StageResult(
                stage=stage.name,
                epochs=epochs,
                density=density(model),
                validation=found["validation"],
                test=found["test"],
                samples={split: int(count) for split, count in counts.items()},
                **size.found()._asdict(),
            )

    def check(self, method: Method) -> None:
        """Raise, before hours are spent or anything is written, if a method cannot do its work:
        held-out data is missing, or its layers cannot meet the budget of multiply-adds."""
        if isinstance(method, Counting) and method.counts_macs:
            self.engine.see(method.model, self.loader, self.task.inputs)
            method.costs()
        if method.needs_evaluate and not len(self._held_out["validation"]):
            raise SettingError(
                f"the method {method.name} compares masks on validation data, and this task "
                "holds out none: set data.validation_images"
            )

    def judge(self, model: nn.Module) -> Evaluate | None:
        """How good the model is on the validation data (higher is better); None without any."""
        if not len(self._held_out["validation"]):
            return None
        metric = self.task.metrics[0].info
        return lambda: metric.gain(self._measure(model, "validation")[metric.name], over=0.0)

    def _measure(
        self, module: nn.Module, split: SplitName, also: tuple[Metric, ...] = ()
    ) -> Values:
        task, loader = self.task, self._held_out[split]
        values = self.engine.measure(module, loader, (*task.metrics, *also), task.inputs)
        for name, value in values.items():
            if not isfinite(value):
                raise DivergedError(
                    f"{name} on the {split} data is {value}, though all weights are finite. Try a "
                    "smaller recipe.lr, engine.clip, or engine.precision=fp32"
                )
        return values

    def record(self, result: StageResult, ticket: Ticket | None = None) -> None:
        """Write down what a stage found; a stage of the same name is replaced."""
        if ticket is not None:
            path = ticket_path(result.stage)
            layers = {layer.name: layer.density for layer in ticket.mask.layers}
            result = result.model_copy(update={"layers": layers, "ticket": str(path)})
            if self.engine.is_main:
                self._run.check_folder()
                ticket.save(self.folder / path)
        self._write(self.results.with_stage(result))

    def finish(self) -> RunResults:
        """Mark the run as finished."""
        self._write(self.results.model_copy(update={"finished": True}))
        return self.results

    def _write(self, results: RunResults) -> None:
        self.results = results
        if self.engine.is_main:
            self._run.check_folder()
            write_results(self.folder, results)
            self._stopwatch.write()


def density(model: nn.Module) -> float:
    """The density of the hard mask; a model without gates keeps everything."""
    return Mask.of(model).density if gated_parameters(model) else 1.0


def _as_text(line: EpochMetrics, recipe: Recipe, metric: MetricInfo) -> str:
    epoch = f"{line.epoch:>{len(str(recipe.epochs))}}/{recipe.epochs}"
    text = f"{line.stage}  epoch {epoch}  loss {line.loss:.4f}"
    if metric.name in line.validation:
        text += f"  validation {metric.text(line.validation[metric.name]):>7}"
    return f"{text}  density {percent(line.density):>7}"


def _plain(value: Any) -> int | float | str:
    """A setting as trackers take it."""
    return value if isinstance(value, int | float) else str(value)
