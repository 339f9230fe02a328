"""MNIST and Fashion-MNIST from the official idx files, compressed or not."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from prunus.tasks.data.arrays import ArrayData, Split, array_data
from prunus.tasks.data.errors import DamagedDataError
from prunus.tasks.data.sources import find_folder, missing
from prunus.tasks.data.splits import DataOptions

_UNSIGNED_BYTE = 0x08
_NUM_CLASSES = 10
_VALIDATION_IMAGES = 5_000
_CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def mnist(root: Path, options: DataOptions) -> ArrayData:
    """MNIST: 60,000 training and 10,000 test images of digits, 28x28; no augmentation."""
    return _idx_data("mnist", root, options, augment=False)


def fashion_mnist(root: Path, options: DataOptions) -> ArrayData:
    """Fashion-MNIST: like MNIST, but of clothes, and randomly cropped and mirrored."""
    return _idx_data("fashion-mnist", root, options, augment=True)


def _idx_data(name: str, root: Path, options: DataOptions, *, augment: bool) -> ArrayData:
    folder = find_folder(name, root)
    return array_data(
        _read_split(name, folder, "train"),
        _read_split(name, folder, "t10k"),
        options,
        num_classes=_NUM_CLASSES,
        validation_images=_VALIDATION_IMAGES,
        augment=augment,
        classes=_CLOTHES if name == "fashion-mnist" else (),
    )


def _read_split(name: str, folder: Path, part: str) -> Split:
    images_path = _existing(name, folder / f"{part}-images-idx3-ubyte")
    labels_path = _existing(name, folder / f"{part}-labels-idx1-ubyte")
    images, labels = read_idx(images_path, dimensions=3), read_idx(labels_path, dimensions=1)
    if len(images) != len(labels):
        raise DamagedDataError(
            f"{images_path} has {len(images)} images but {labels_path} has {len(labels)} labels; "
            f"get both again"
        )
    if len(labels) and labels.max() >= _NUM_CLASSES:
        raise DamagedDataError(f"{labels_path} has labels above {_NUM_CLASSES - 1}; get it again")
    return Split(images.unsqueeze(1), labels.long())


def _existing(name: str, path: Path) -> Path:
    for candidate in (path, path.with_name(f"{path.name}.gz")):
        if candidate.is_file():
            return candidate
    raise missing(name, [path.with_name(f"{path.name}[.gz]")])


def read_idx(path: Path, *, dimensions: int) -> Tensor:
    """The array of bytes in an idx file, which must have this number of dimensions."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            magic, *shape = struct.unpack(f">{1 + dimensions}I", file.read(4 + 4 * dimensions))
            if magic != _UNSIGNED_BYTE << 8 | dimensions:
                raise DamagedDataError(
                    f"{path} does not begin like an idx file of bytes in {dimensions} "
                    f"dimensions; delete it and get it again"
                )
            # One byte more than announced is enough to notice that a file is too long.
            data = file.read(math.prod(shape) + 1)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise DamagedDataError(
            f"{path} is damaged or cut short ({error}); delete it and get it again"
        ) from error
    if len(data) != math.prod(shape):
        raise DamagedDataError(
            f"{path} announces {math.prod(shape)} bytes of data but holds "
            f"{'more' if len(data) > math.prod(shape) else len(data)}; delete it and get it again"
        )
    return torch.from_numpy(np.frombuffer(bytearray(data), dtype=np.uint8).reshape(shape))
