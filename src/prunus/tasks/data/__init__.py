"""Data sets by name, and the loaders that feed them to a network."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from torch import Tensor

from prunus.lookup import unknown
from prunus.tasks.data.arrays import ArrayData, Split
from prunus.tasks.data.batches import Batches
from prunus.tasks.data.cifar import cifar10, cifar100
from prunus.tasks.data.digits import digits
from prunus.tasks.data.download import download
from prunus.tasks.data.errors import DamagedDataError, DataError, MissingDataError
from prunus.tasks.data.idx import fashion_mnist, mnist
from prunus.tasks.data.image_folder import ImageBatches, ImageFolderData, image_folder
from prunus.tasks.data.sharding import LoaderOptions
from prunus.tasks.data.sources import SOURCES
from prunus.tasks.data.splits import DataOptions, SplitName

__all__ = [
    "DATA_SETS",
    "ArrayData",
    "Batches",
    "DamagedDataError",
    "Data",
    "DataError",
    "DataOptions",
    "ImageBatches",
    "ImageFolderData",
    "Loader",
    "LoaderOptions",
    "MissingDataError",
    "Split",
    "SplitName",
    "download",
    "load_data",
]


class Loader(Protocol):
    """Batches of images and labels on the training device, for one rank."""

    def __len__(self) -> int:
        """The number of batches in an epoch, the same on every rank."""
        ...

    def epoch(self, number: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of epoch `number` from `start_batch` on, bit for bit as in a whole epoch."""
        ...


class Data(Protocol):
    """What a task needs to know of its data set."""

    @property
    def num_classes(self) -> int: ...

    @property
    def image_size(self) -> int: ...

    @property
    def channels(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Tells apart data that name and options do not; a run's hash includes it."""
        ...

    def training(self, options: LoaderOptions, *, seed: int) -> Loader:
        """Shuffled, augmented batches of the training set, without an incomplete last one."""
        ...

    def evaluation(self, split: SplitName, options: LoaderOptions) -> Loader:
        """Every image of a split once. A rank's part of the last batch may be empty."""
        ...


DATA_SETS: dict[str, Callable[[Path, DataOptions], Data]] = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "digits": lambda _, options: digits(options),
    "fashion-mnist": fashion_mnist,
    "image-folder": image_folder,
    "imagenet": lambda root, options: image_folder(root / "imagenet", options),
    "mnist": mnist,
}
"""Readers by name. `image-folder` reads the tree at the data root itself, the others below it."""


def load_data(
    name: str,
    root: str | Path,
    options: DataOptions | None = None,
    *,
    fetch_missing: bool = False,
) -> Data:
    """The data set `name` of `DATA_SETS` from the files below `root`.

    With `fetch_missing`, files that are not there are downloaded from their official place.
    """
    if name not in DATA_SETS:
        raise unknown("data set", name, DATA_SETS)
    root = Path(root).expanduser()
    read = DATA_SETS[name]
    try:
        return read(root, options or DataOptions())
    except MissingDataError:
        if not (fetch_missing and name in SOURCES):
            raise
    download(name, root)
    return read(root, options or DataOptions())
