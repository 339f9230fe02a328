"""What a task needs of its data set, whatever is in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from prunus.tasks.data.sharding import LoaderOptions
from prunus.tasks.data.splits import SplitName
from prunus_runtime.images import Images


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
        """Tells apart data that name and options do not; a run's hash includes it."""
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
