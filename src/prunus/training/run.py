"""A run: training that shows what it does, can be stopped at any moment, and can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import nn

from prunus.files import resolved
from prunus.methods import Method
from prunus.randomness import random_state, restore_random_state
from prunus.training.checkpoint import CheckpointError, Checkpoints
from prunus.training.engine import Engine
from prunus.training.folder_lock import FolderLock
from prunus.training.health import DivergedError, diverged, unhealthy
from prunus.training.metrics import MetricsFile
from prunus.training.progress import RunProgress
from prunus.training.signals import StoppedError, StopRequests
from prunus.training.trainer import Trainer


@dataclass(frozen=True)
class Stage:
    """A part of a run that is trained in one go: its number, from 0, and its name."""

    number: int
    name: str


_CONTENT = {
    "stage": int,
    "steps_before": int,
    "model": dict,
    "method": dict | None,
    "trainer": dict,
    "random": list,
    "metrics": int,
}
"""What a checkpoint holds."""


class Run:
    """One execution in one folder, made of stages that follow each other (a round, fine-tuning).

    Enter it, `restore` the model, then `train` the stages, beginning with the one that `restore`
    names. What happens between two stages (the end of a round, `harden`) is done again after an
    interruption there, from the checkpoint of the last step. The result is the same, because the
    random generators are restored too.
    """

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        *,
        total_steps: int,
        checkpoint_every: int | None = None,
        progress: RunProgress | None = None,
    ) -> None:
        self.folder, self.engine, self.checkpoint_every = folder, engine, checkpoint_every
        self.progress = progress or RunProgress(total_steps, quiet=not engine.is_main)
        self.metrics = MetricsFile(folder / "metrics.jsonl")
        self.steps_before = 0
        """Training steps of the stages before this one."""
        self._checkpoints = Checkpoints(folder / "checkpoints", resolved(folder).name)
        self._stop = StopRequests()
        self._lock = FolderLock(folder)
        self._entered = ExitStack()
        self._checkpoint: dict[str, Any] | None = None

    def __enter__(self) -> Run:
        is_main = self.engine.is_main
        with ExitStack() as entered:
            if is_main:
                self._lock.acquire()
                entered.callback(self._lock.release)
            latest = self._checkpoints.latest(_CONTENT) if is_main else None
            self._checkpoint = self.engine.from_main(latest)
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
        with ExitStack() as leaving:
            leaving.push(self._entered)
            if isinstance(error, OSError):
                self.check_folder()  # which says more, if it was moved in the middle of a write

    def restore(self, model: nn.Module, method: Method | None = None) -> int:
        """Set model and method to where the run was; returns the number of the stage to train."""
        checkpoint = self._checkpoint
        if self.engine.is_main:
            self.metrics.cut(checkpoint["metrics"] if checkpoint else 0)
        if checkpoint is None:
            return 0
        with self._fitting("network"):
            model.load_state_dict(checkpoint["model"])
            if method is not None:
                method.load_state_dict(checkpoint["method"])
        stage: int = checkpoint["stage"]
        return stage

    def train(self, trainer: Trainer, stage: Stage, at_epoch_end: Callable[[], None]) -> None:
        """Train a stage to its end; `at_epoch_end` measures, and calls `note`."""
        self._resume(trainer, stage)
        try:
            for _ in trainer.steps():
                self._after_step(trainer, stage, at_epoch_end)
        except DivergedError as error:
            newest = self._checkpoints.newest_first()[:1]
            where = newest[0] if newest else "none yet"
            raise DivergedError(f"{error}. Last good checkpoint: {where}") from error
        self.steps_before += trainer.step

    def check_folder(self) -> None:
        """Raise, before something is written, if the run's folder was moved or deleted."""
        self._lock.check()

    def note(self, line: Mapping[str, Any], numbers: Mapping[str, float], text: str) -> None:
        """Write down and show an epoch: `line` for the file of metrics, `numbers` for trackers."""
        if self.engine.is_main:
            self.check_folder()
            self.metrics.add(line)
        self.engine.fabric.log_dict(dict(numbers), step=int(numbers["step"]))
        self.progress.say_with_eta(text)

    def _resume(self, trainer: Trainer, stage: Stage) -> None:
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is None:
            return
        assert checkpoint["stage"] == stage.number
        states = checkpoint["random"]
        with self._fitting("training"):
            trainer.load_state_dict(checkpoint["trainer"])
            if self.engine.rank < len(states):
                restore_random_state(states[self.engine.rank])
        self.steps_before = checkpoint["steps_before"]
        self.progress.begin_at(self.steps_before + trainer.step)
        steps = trainer.recipe.epochs * len(trainer.loader)
        self.progress.say(f"resuming {stage.name} after step {trainer.step} of {steps}")

    @contextmanager
    def _fitting(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever a file may lead to
            raise CheckpointError(
                f"the checkpoint in {self.folder} does not fit its {what}: {error!r:.1000}. Move "
                "the folder away, and the same command does the run again"
            ) from error

    def _after_step(self, trainer: Trainer, stage: Stage, at_epoch_end: Callable[[], None]) -> None:
        self.progress.advance(stage.name)
        signal = 0
        if self.engine.meets_after(trainer.step):
            signal = self.engine.highest(self._stop.received)
        every = self.checkpoint_every
        is_due = every is not None and trainer.step % every == 0
        if trainer.at_epoch_end or signal or is_due:
            self._check_health(trainer)
            if trainer.at_epoch_end:
                at_epoch_end()
            self._save(trainer, stage)
        if signal:
            # Fabric kills everything soon after the first process ends: let all have written.
            self.engine.fabric.barrier()
            raise StoppedError(signal)

    def _check_health(self, trainer: Trainer) -> None:
        """Raise rather than write a bad checkpoint: those before are good, and stay."""
        first_bad = trainer.first_bad_step()
        late = first_bad is not None  # a bad loss makes every weight bad in the same step
        finding = self.engine.first(unhealthy(trainer.model, late=late))
        if finding:
            raise diverged(trainer.step, first_bad, finding)

    def _save(self, trainer: Trainer, stage: Stage) -> None:
        content = {
            "stage": stage.number,
            "steps_before": self.steps_before,
            "model": trainer.model.state_dict(),
            "method": trainer.method.state_dict() if trainer.method else None,
            "trainer": trainer.state_dict(),
            "random": self.engine.gather(random_state()),
            "metrics": self.metrics.position(),
        }
        if self.engine.is_main:
            self.check_folder()
            self._checkpoints.save(content, stage.number, trainer.step)
