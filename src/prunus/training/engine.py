"""The machine under a training run: devices, processes, precision. Lightning Fabric does the work.

Under DDP every process holds the same model and sees its part of each batch. Gradients are averaged
and the parts are equally large, so the result is that of one process with the whole batch. The
exception is BatchNorm, which normalises each part by itself unless `sync_batch_norm` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.loggers.logger import Logger
from torch import Tensor, nn

from prunus.errors import SettingError
from prunus.tasks.batch import call, model_inputs
from prunus.tasks.data import Loader, LoaderOptions
from prunus.tasks.metrics import Metric, accuracy
from prunus.training.memory import keep_freed_memory
from prunus.training.settings import EngineSettings

_PRECISION = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}
_STEPS_BETWEEN_MEETINGS = 10
T = TypeVar("T")


class Engine:
    """Prepares models, optimisers and data for the devices that the settings ask for.

    Creating one starts the other processes that the settings ask for: each runs the same program.
    """

    def __init__(
        self, settings: EngineSettings | None = None, loggers: Sequence[Logger] = ()
    ) -> None:
        self.settings = settings or EngineSettings()
        alone = self.settings.devices == 1 and self.settings.nodes == 1
        self.fabric = Fabric(
            accelerator=self.settings.accelerator,
            devices=self.settings.devices,
            num_nodes=self.settings.nodes,
            strategy="auto" if alone else "ddp",
            precision=_PRECISION[self.settings.precision],  # type: ignore[arg-type]
            loggers=list(loggers),
        )
        self.fabric.launch()
        self.device = self.fabric.device
        self.rank, self.world_size = self.fabric.global_rank, self.fabric.world_size
        self.is_main = self.fabric.is_global_zero
        self._check_device()
        if self.device.type == "cpu":
            keep_freed_memory()

    def _check_device(self) -> None:
        kind = self.device.type
        if self.settings.sync_batch_norm and kind != "cuda":
            raise SettingError(
                f"engine.sync_batch_norm works on GPUs only, and this is {kind}: leave it out "
                "(each process then normalises by its own part of the batch)"
            )
        if self.settings.precision == "fp16" and kind == "cpu":
            raise SettingError("engine.precision=fp16 needs a GPU; a CPU can do bf16")

    # Models and data

    def prepare(self, model: nn.Module) -> nn.Module:
        """Move a plain model to the device, before a method attaches to it."""
        if self.settings.sync_batch_norm:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        if self.settings.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model.to(self.device)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as the loop calls it: compiled, in DDP, under autocast, as settings ask."""
        if self.settings.compile:
            model = torch.compile(model)  # type: ignore[assignment]
        return self.fabric.setup_module(model)

    def loader_options(self, batch_size: int) -> LoaderOptions:
        """This process's share of batches of `batch_size` samples."""
        return LoaderOptions(
            batch_size,
            device=self.device,
            channels_last=self.settings.channels_last,
            rank=self.rank,
            world_size=self.world_size,
            workers=self.settings.workers,
        )

    @torch.no_grad()
    def measure(
        self,
        model: nn.Module,
        loader: Loader,
        metrics: Sequence[Metric] = (accuracy,),
        inputs: Callable[[Any], Any] = model_inputs,
    ) -> dict[str, float]:
        """The metrics of the model in evaluation mode, over all batches and processes.

        Empty for a loader without batches.
        """
        training = model.training
        model.eval()
        totals: list[Tensor] = []
        for batch in loader.epoch(0):
            output = call(model, inputs(batch))
            found = [metric.measure(output, batch) for metric in metrics]
            totals = [a + b for a, b in zip(totals, found, strict=True)] if totals else found
        model.train(training)
        summed = [self.reduce(total, "sum") for total in totals]
        return {m.info.name: m.finish(total) for m, total in zip(metrics, summed, strict=False)}

    @torch.no_grad()
    def see(
        self, model: nn.Module, loader: Loader, inputs: Callable[[Any], Any] = model_inputs
    ) -> None:
        """Show one batch to the model in evaluation mode, for those who watch its layers."""
        training = model.training
        model.eval()
        call(model, inputs(next(iter(loader.epoch(0)))))
        model.train(training)

    # What processes tell each other

    def meets_after(self, step: int) -> bool:
        """Whether processes compare notes after this step; for one process on a CPU, always."""
        alone = self.world_size == 1 and self.device.type == "cpu"
        return alone or step % _STEPS_BETWEEN_MEETINGS == 0

    def reduce(self, value: Tensor, how: str) -> Tensor:
        """The sum, mean or max of `value` over all processes."""
        if self.world_size == 1:
            return value
        result = self.fabric.all_reduce(value, reduce_op=how)
        assert isinstance(result, Tensor)
        return result

    def highest(self, number: int) -> int:
        """The highest of all processes' numbers."""
        if self.world_size == 1:
            return number
        return int(self.reduce(torch.tensor(number, device=self.device), "max"))

    def gather(self, value: T) -> list[T]:
        """What every process gave, in order of rank."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(values, value)
        return values

    def first(self, value: T | None) -> T | None:
        """The first value, by rank, that is not None; the same in all processes."""
        return next((given for given in self.gather(value) if given is not None), None)

    def from_main(self, value: T) -> T:
        """What the main process gave."""
        return self.fabric.broadcast(value) if self.world_size > 1 else value
