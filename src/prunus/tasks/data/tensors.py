"""Any data that fit into memory: tensors, or tuples or dicts of tensors, with samples on axis 0."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from prunus.errors import SettingError
from prunus.tasks.batch import count_samples, map_tensors, tensors
from prunus.tasks.data.protocol import EpochPlan, LoaderOptions
from prunus.tasks.data.splits import DataOptions, SplitName, hold_out, split_off_test


class TensorBatches:
    """A `Loader` over samples on the options' device: shuffled with a `seed`, else in order."""

    def __init__(self, samples: Any, options: LoaderOptions, *, seed: int | None = None) -> None:
        self._samples = map_tensors(lambda t: t.to(options.device), samples)
        self._device = options.device
        self._plan = EpochPlan(count_samples(samples), options, seed)

    def __len__(self) -> int:
        """The number of batches in an epoch, the same on every rank."""
        return len(self._plan)

    def epoch(self, number: int, start_batch: int = 0) -> Iterator[Any]:
        """The batches of epoch `number` from `start_batch` on."""
        order = self._plan.order(number).to(self._device)
        for batch in self._plan.batches_from(start_batch):
            yield take(self._samples, order[self._plan.positions(batch)])


@dataclass(frozen=True)
class TensorData:
    """A data set in memory; every split has the structure of a batch."""

    train: Any
    validation: Any
    test: Any

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            lengths = {len(tensor) for tensor in tensors(getattr(self, name))}
            if len(lengths) != 1:
                raise SettingError(
                    f"the tensors of {name} must all have the same number of samples, not "
                    f"{sorted(lengths)}"
                )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all samples."""
        digest = hashlib.sha256()
        for split in (self.train, self.validation, self.test):
            for tensor in tensors(split):
                digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def training(self, options: LoaderOptions, *, seed: int) -> TensorBatches:
        """Shuffled batches of the training set."""
        return TensorBatches(self.train, options, seed=seed)

    def evaluation(self, split: SplitName, options: LoaderOptions) -> TensorBatches:
        """Every sample of a split once, in order."""
        return TensorBatches(getattr(self, split), options)


def tensor_data(
    samples: Any, options: DataOptions, *, validation_samples: int, test_samples: int
) -> TensorData:
    """Cut samples into splits: the test set is the same in every run, the others as `options` ask.

    `validation_samples` is the default of this data set for `options.validation_images`.
    """
    rest, test = split_off_test(count_samples(samples), test_samples)
    trained, held_out = hold_out(len(rest), options, validation_images=validation_samples)
    return TensorData(
        train=take(samples, rest[trained]),
        validation=take(samples, rest[held_out]),
        test=take(samples, test),
    )


def take(samples: Any, indices: Tensor) -> Any:
    """The samples at these indices, copied."""
    return map_tensors(lambda t: t[indices], samples)
