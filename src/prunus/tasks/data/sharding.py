"""How an epoch is cut into batches and shared among ranks, and where its randomness comes from.

Nothing here has state: an epoch's order and augmentation follow from its key alone, so a run
can start anywhere inside an epoch, on any number of ranks or workers, and see the same samples.
"""

from dataclasses import dataclass, field

import torch

from prunus.errors import SettingError


@dataclass(frozen=True)
class LoaderOptions:
    """How a loader hands out batches. `batch_size` counts the samples of all ranks together."""

    batch_size: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    channels_last: bool = False
    rank: int = 0
    world_size: int = 1
    workers: int = 0
    """Processes that decode images; data held in memory needs none and ignores it."""

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


@dataclass(frozen=True)
class Plan:
    """Which positions of an epoch of `samples` make up each batch, for one rank.

    Training (`whole_batches`) leaves out an incomplete last batch; evaluation keeps it, so that
    every sample is seen once. A rank's part of that last batch may be empty: every rank still
    gets it, so that all take the same number of steps.
    """

    samples: int
    options: LoaderOptions
    whole_batches: bool

    def __post_init__(self) -> None:
        if self.whole_batches and len(self) == 0:
            raise SettingError(
                f"a batch of {self.options.batch_size} samples is more than the {self.samples} "
                f"of the training set; use a smaller batch_size"
            )

    def __len__(self) -> int:
        full, rest = divmod(self.samples, self.options.batch_size)
        return full + (rest > 0 and not self.whole_batches)

    def batches_from(self, start_batch: int) -> range:
        """The numbers of the batches from `start_batch` on."""
        if not 0 <= start_batch <= len(self):
            raise SettingError(
                f"start_batch must lie between 0 and {len(self)} (the end), not {start_batch}"
            )
        return range(start_batch, len(self))

    def positions(self, batch: int) -> slice:
        """This rank's positions of `batch`; ranks follow each other without gap or overlap."""
        start = batch * self.options.batch_size
        size = min(self.options.batch_size, self.samples - start)
        rank, world_size = self.options.rank, self.options.world_size
        return slice(start + size * rank // world_size, start + size * (rank + 1) // world_size)
