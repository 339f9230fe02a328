"""A run: training that shows what it does, can be stopped at any moment, and goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import nn

from prunus.methods import Method
from prunus.tables import percent
from prunus.training.checkpoint import Checkpoints
from prunus.training.engine import Engine
from prunus.training.folder_lock import FolderLock
from prunus.training.health import DivergedError, diverged, unhealthy
from prunus.training.metrics import Metrics
from prunus.training.progress import Progress
from prunus.training.randomness import random_state, restore_random_state
from prunus.training.signals import StoppedError, StopRequests
from prunus.training.trainer import Trainer

Measure = Callable[[nn.Module], dict[str, float]]
"""Given the wrapped model: the numbers for one line of the metrics."""


class Run:
    """One execution in one folder, made of phases that follow each other (a round, fine-tuning).

    Enter it, `restore` the model, then `train` each phase from the one that `restore` names. What a
    phase changes between its last step and the first of the next (a round's end, `harden`) is done
    again after an interruption there, from the checkpoint of the last step: it has the same result,
    because the random generators are restored too.
    """

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        *,
        total_steps: int,
        checkpoint_every: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.folder, self.engine, self.checkpoint_every = folder, engine, checkpoint_every
        self.progress = progress or Progress(total_steps, quiet=not engine.is_main)
        self.metrics = Metrics(folder / "metrics.jsonl")
        self._checkpoints = Checkpoints(folder / "checkpoints")
        self._stop = StopRequests()
        self._lock = FolderLock(folder)
        self._entered = ExitStack()
        self._found: dict[str, Any] | None = None
        self._steps_before = 0  # of the phases before this one

    def __enter__(self) -> Run:
        is_main = self.engine.is_main
        with ExitStack() as entered:
            if is_main:
                self._lock.acquire()
                entered.callback(self._lock.release)
            self._found = self.engine.from_main(self._checkpoints.latest() if is_main else None)
            entered.enter_context(self._stop)
            entered.enter_context(self.progress)
            self._entered = entered.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._entered.__exit__(kind, error, traceback)

    def restore(self, model: nn.Module, method: Method | None = None) -> int:
        """Set model and method to where the run was; returns the number of the phase to train."""
        found = self._found
        if self.engine.is_main:
            self.metrics.go_back(found["metrics"] if found else 0)
        if found is None:
            return 0
        model.load_state_dict(found["model"])
        if method is not None:
            method.load_state_dict(found["method"])
        phase: int = found["phase"]
        return phase

    def train(self, trainer: Trainer, phase: int, name: str, measure: Measure) -> None:
        """Train a phase to its end, with a line of metrics after each epoch."""
        self._resume(trainer, phase, name)
        try:
            self._train(trainer, phase, name, measure)
        except DivergedError as error:
            kept = self._checkpoints.newest_first()[:1]
            where = kept[0] if kept else "none yet"
            raise DivergedError(f"{error}. Last good checkpoint: {where}") from error
        self._steps_before += trainer.step

    def _train(self, trainer: Trainer, phase: int, name: str, measure: Measure) -> None:
        for _ in trainer.steps():
            self.progress.advance(name)
            stop = 0
            if self.engine.meets_after(trainer.step):
                stop = self.engine.highest(self._stop.received)
            if trainer.at_epoch_end:
                self._note_epoch(trainer, phase, name, measure)
            if trainer.at_epoch_end or stop or self._is_time(trainer.step):
                self._save(trainer, phase)
            if stop:
                # Fabric kills everything soon after the first process ends: let all have written.
                self.engine.fabric.barrier()
                raise StoppedError(stop)

    def _is_time(self, step: int) -> bool:
        return self.checkpoint_every is not None and step % self.checkpoint_every == 0

    def _resume(self, trainer: Trainer, phase: int, name: str) -> None:
        found, self._found = self._found, None
        if found is None:
            return
        trainer.load_state_dict(found["trainer"])
        states = found["random"]
        if self.engine.rank < len(states):
            restore_random_state(states[self.engine.rank])
        assert found["phase"] == phase
        self._steps_before = found["steps_before"]
        self.progress.begin_at(self._steps_before + trainer.step)
        self.progress.say(
            f"going on with {name}, after step {trainer.step} of "
            f"{trainer.recipe.epochs * len(trainer.loader)}"
        )

    def _note_epoch(self, trainer: Trainer, phase: int, name: str, measure: Measure) -> None:
        line: dict[str, Any] = {
            "phase": name,
            "epoch": trainer.epoch,
            "step": self._steps_before + trainer.step,
            "lr": trainer.optimizer.param_groups[0]["lr"],
            "loss": trainer.mean_loss(),
            **measure(trainer.module),
        }
        if self.engine.is_main:
            self.metrics.add(line)
        numbers = {k: float(v) for k, v in line.items() if k != "phase"}
        self.engine.fabric.log_dict({**numbers, "phase": float(phase)}, step=line["step"])
        self.progress.say_with_eta(_as_text(line, trainer.recipe.epochs))

    def _save(self, trainer: Trainer, phase: int) -> None:
        first_bad = trainer.first_bad_step()
        late = first_bad is not None  # a bad loss makes every weight bad in the same step
        finding = self.engine.first(unhealthy(trainer.model, late=late))
        if finding:  # the checkpoints before this one are good, and stay
            raise diverged(trainer.step, first_bad, finding)
        content = {
            "phase": phase,
            "steps_before": self._steps_before,
            "model": trainer.model.state_dict(),
            "method": trainer.method.state_dict() if trainer.method else None,
            "trainer": trainer.state_dict(),
            "random": self.engine.gather(random_state()),
            "metrics": self.metrics.position(),
        }
        if self.engine.is_main:
            self._checkpoints.save(content, phase, trainer.step)


def _as_text(line: dict[str, Any], epochs: int) -> str:
    width = len(str(epochs))
    text = f"{line['phase']}  epoch {line['epoch']:>{width}}/{epochs}  loss {line['loss']:.4f}"
    for name in ("validation_accuracy", "density"):
        if name in line:
            text += f"  {name.partition('_')[0]} {percent(line[name]):>7}"
    return text
