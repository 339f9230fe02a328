"""Sparsify in the `Trainer` of Lightning.

trainer = lightning.Trainer(callbacks=[SparsifyCallback(target_density=0.1)], ...)
trainer.fit(module)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import StochasticWeightAveraging, WeightAveraging
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from torch.optim import Optimizer

from prunus.integrations.guest import Guest
from prunus.methods import Method
from prunus.methods.cs import ContinuousSparsification
from prunus.methods.settings import check
from prunus.tickets.hub import TICKET

CHECKPOINT = "sparse.ckpt"

_AVERAGES = (WeightAveraging, StochasticWeightAveraging)


class SparsifyCallback(Callback):
    """Search for a subnetwork while the Trainer fits; all evaluation is on the binary mask.

    Give it a method that is attached to the module or a part of it, or the class of a method with
    its settings: by default Continuous Sparsification. Of several optimisers the last is followed.

    At the end the module is plain again, with zeros in place. The Trainer's `default_root_dir`
    holds it as `sparse.ckpt`, with `ticket.safetensors` beside it. A module that processes share
    out (`fully_shard`) keeps its gates, with the mask fixed: then there is the ticket alone.
    """

    def __init__(
        self, method: Method | type[Method] = ContinuousSparsification, **settings: Any
    ) -> None:
        self.guest = Guest(method, settings)
        self._saved: dict[str, Any] | None = None
        self._began = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":  # before a checkpoint is loaded and optimisers are configured
            check(
                not isinstance(trainer.strategy, FSDPStrategy | DeepSpeedStrategy),
                f"{type(trainer.strategy).__name__} takes parameters apart, and gates with them: "
                "use DDPStrategy, or ModelParallelStrategy and fully_shard",
            )
            callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
            first = next((c for c in callbacks if c is self or isinstance(c, _AVERAGES)), self)
            check(
                first is self,
                f"{type(first).__name__} comes before SparsifyCallback, and would average a copy "
                "without gates: put it after it in the list of callbacks",
            )
            self.guest.attach(pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        steps = trainer.estimated_stepping_batches
        self.guest.begin(pl_module, steps, trainer.optimizers[-1], self._saved)
        self._began = True

    def on_train_batch_start(self, *_: Any) -> None:
        self.guest.before_batch()

    def on_before_optimizer_step(
        self, trainer: Trainer, _: LightningModule, optimizer: Optimizer
    ) -> None:
        if optimizer is trainer.optimizers[-1]:
            self.guest.before_step()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.global_step % every == 0:
            pl_module.log_dict(self.guest.metrics())

    def state_dict(self) -> dict[str, Any]:
        """For the Trainer's checkpoints."""
        return self.guest.method.state_dict() if self.guest.method is not None else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The state at the checkpoint that fitting goes on from."""
        self._saved = state_dict

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._began:  # a checkpoint after the last step: there was nothing left to train
            self.on_train_start(trainer, pl_module)
        [ticket, is_plain], folder = self.guest.end(), Path(trainer.default_root_dir)
        if is_plain:
            trainer.save_checkpoint(folder / CHECKPOINT, weights_only=True)
        if trainer.is_global_zero:
            ticket.save(folder / TICKET)
