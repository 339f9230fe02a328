"""What a task needs of its data set, whatever is in it; and how loaders cut epochs into batches.

Nothing here has state: the order and augmentation of an epoch follow from (seed, epoch) alone. So a
run can start anywhere inside an epoch, on any number of ranks or workers, and see the same samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from prunus.errors import SettingError
from prunus.randomness import generator_for
from prunus.tasks.data.splits import SplitName
from prunus_runtime.images import Images


@dataclass(frozen=True)
class LoaderOptions:
    """How a loader hands out batches. `batch_size` counts the samples of all ranks together."""

    batch_size: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    channels_last: bool = False
    rank: int = 0
    world_size: int = 1
    workers: int = 0
    """Processes that decode images; ignored for data in memory."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise SettingError(f"batch_size must be at least 1, not {self.batch_size}")
        if self.workers < 0:
            raise SettingError(f"workers must be 0 or more, not {self.workers}")
        if not 0 <= self.rank < self.world_size:
            raise SettingError(
                f"rank must lie between 0 and world_size - 1 = {self.world_size - 1}, "
                f"not {self.rank}"
            )
        if self.batch_size % self.world_size:
            raise SettingError(
                f"a batch of {self.batch_size} samples cannot be shared equally among "
                f"{self.world_size} ranks; use a multiple of {self.world_size}"
            )


class Loader(Protocol):
    """Batches on the training device, for one rank: tensors, tuples or dicts of tensors."""

    def __len__(self) -> int:
        """The number of batches in an epoch, the same on every rank."""
        ...

    def epoch(self, number: int, start_batch: int = 0) -> Iterator[Any]:
        """The batches of epoch `number` from `start_batch` on, bit for bit as in a whole epoch."""
        ...


class Data(Protocol):
    """A data set in three splits."""

    @property
    def fingerprint(self) -> str:
        """Distinguishes data with the same name and options; part of a run's hash."""
        ...

    def training(self, options: LoaderOptions, *, seed: int) -> Loader:
        """Shuffled, augmented batches of the training set, without an incomplete last one."""
        ...

    def evaluation(self, split: SplitName, options: LoaderOptions) -> Loader:
        """Every sample of a split once. A rank's part of the last batch may be empty."""
        ...


class ImageData(Data, Protocol):
    """Labelled images, for networks that classify them."""

    @property
    def num_classes(self) -> int: ...

    @property
    def image_size(self) -> int:
        """The side of the square images in pixels."""
        ...

    @property
    def channels(self) -> int:
        """1 for grey, 3 for colour."""
        ...

    @property
    def images(self) -> Images:
        """How an image becomes an input, and what the classes are called."""
        ...


@dataclass(frozen=True)
class EpochPlan:
    """The order of an epoch of `samples`, and which positions in it make up each batch of a rank.

    Training has a `seed`: its epochs are shuffled, and an incomplete last batch is left out.
    Evaluation has none: it goes through all samples in order. A rank's part of the last batch may
    then be empty; it still gets one, so that all ranks take the same number of steps.
    """

    samples: int
    options: LoaderOptions
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.seed is not None and len(self) == 0:
            raise SettingError(
                f"a batch of {self.options.batch_size} samples is more than the {self.samples} "
                f"of the training set; use a smaller batch_size"
            )

    def __len__(self) -> int:
        full, rest = divmod(self.samples, self.options.batch_size)
        return full + (rest > 0 and self.seed is None)

    def order(self, epoch: int) -> Tensor:
        """The number of the sample at each position of `epoch`."""
        if self.seed is None:
            return torch.arange(self.samples)
        return torch.randperm(self.samples, generator=generator_for(self.seed, epoch))

    def batches_from(self, start_batch: int) -> range:
        """The numbers of the batches from `start_batch` on."""
        if not 0 <= start_batch <= len(self):
            raise SettingError(
                f"start_batch must lie between 0 and {len(self)} (the end), not {start_batch}"
            )
        return range(start_batch, len(self))

    def positions(self, batch: int) -> slice:
        """This rank's positions of `batch`; those of all ranks fill it without gap or overlap."""
        start = batch * self.options.batch_size
        size = min(self.options.batch_size, self.samples - start)
        rank, world_size = self.options.rank, self.options.world_size
        return slice(start + size * rank // world_size, start + size * (rank + 1) // world_size)
