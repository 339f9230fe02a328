"""Data sets by name, and the loaders that feed them to a network."""

from collections.abc import Callable
from pathlib import Path

from prunus.files import expanded
from prunus.lookup import unknown
from prunus.tasks.data.arrays import ArrayData, Split
from prunus.tasks.data.batches import Batches
from prunus.tasks.data.cifar import cifar10, cifar100
from prunus.tasks.data.digits import digits
from prunus.tasks.data.download import download
from prunus.tasks.data.errors import DamagedDataError, DataError, MissingDataError
from prunus.tasks.data.idx import fashion_mnist, mnist
from prunus.tasks.data.image_folder import ImageBatches, ImageFolderData, image_folder, imagenet
from prunus.tasks.data.protocol import Data, EpochPlan, ImageData, Loader, LoaderOptions
from prunus.tasks.data.sources import SOURCES
from prunus.tasks.data.splits import DataOptions, SplitName
from prunus.tasks.data.tensors import TensorBatches, TensorData, tensor_data

__all__ = [
    "DATA_SETS",
    "ArrayData",
    "Batches",
    "DamagedDataError",
    "Data",
    "DataError",
    "DataOptions",
    "EpochPlan",
    "ImageBatches",
    "ImageData",
    "ImageFolderData",
    "Loader",
    "LoaderOptions",
    "MissingDataError",
    "Split",
    "SplitName",
    "TensorBatches",
    "TensorData",
    "download",
    "load_data",
    "tensor_data",
]


def _digits(_: Path, options: DataOptions) -> ImageData:
    """Handwritten digits that come with scikit-learn: 1,797 images of 8x8 pixels."""
    return digits(options)


def _imagenet(root: Path, options: DataOptions) -> ImageData:
    """ImageNet, or a tree of class folders like it, in its usual size."""
    return imagenet(root / "imagenet", options)


DATA_SETS: dict[str, Callable[[Path, DataOptions], ImageData]] = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "digits": _digits,
    "fashion-mnist": fashion_mnist,
    "image-folder": image_folder,
    "imagenet": _imagenet,
    "mnist": mnist,
}
"""Sets of labelled images by name. `image-folder` is the tree at the data root itself; the others
lie below it."""


def load_data(
    name: str,
    root: str | Path,
    options: DataOptions | None = None,
    *,
    fetch_missing: bool = False,
) -> ImageData:
    """The data set `name` of `DATA_SETS` from the files below `root`.

    With `fetch_missing`, missing files are downloaded from their official place.
    """
    if name not in DATA_SETS:
        raise unknown("data set", name, DATA_SETS)
    root = expanded(root)
    read = DATA_SETS[name]
    try:
        return read(root, options or DataOptions())
    except MissingDataError:
        if not (fetch_missing and name in SOURCES):
            raise
    download(name, root)
    return read(root, options or DataOptions())
