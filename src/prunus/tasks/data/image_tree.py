"""The image files in a folder tree, their classes, and their splits."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from prunus.tasks.data.errors import DamagedDataError, MissingDataError
from prunus.tasks.data.splits import DataOptions, hold_out, split_off_test

_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
_MOST_HELD_OUT = 10_000
_FINGERPRINT_LENGTH = 16


@dataclass(frozen=True)
class ImageList:
    """Image files below a folder, and the class number of each.

    Paths are one NumPy array of bytes: a million Python strings would be copied into every worker,
    because reference counts are written to their memory.
    """

    folder: Path
    files: npt.NDArray[np.bytes_]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.files)

    def path(self, index: int) -> Path:
        """The file of image number `index`."""
        file: bytes = self.files[index]
        return self.folder / file.decode()

    def take(self, indices: torch.Tensor) -> "ImageList":
        """The images at these indices."""
        chosen = indices.numpy()
        return ImageList(self.folder, self.files[chosen], self.labels[chosen])


@dataclass(frozen=True)
class ImageSplits:
    """The classes of a tree in alphabetical order, and its images in three splits."""

    classes: tuple[str, ...]
    train: ImageList
    validation: ImageList
    test: ImageList

    def fingerprint(self) -> str:
        """A hash of the classes, and of the names and sizes of the files in each split."""
        digest = hashlib.sha256(repr(self.classes).encode())
        for part in (self.train, self.validation, self.test):
            digest.update(f"{len(part)} files".encode())
            for index, file in enumerate(part.files.tolist()):
                path = part.path(index)
                try:
                    size = path.stat().st_size
                except OSError as error:
                    what = "a link that leads nowhere" if path.is_symlink() else error.strerror
                    raise DamagedDataError(f"cannot read {path}: {what}; remove it") from error
                digest.update(repr((file, size)).encode())
        return digest.hexdigest()[:_FINGERPRINT_LENGTH]


def read_tree(folder: Path, options: DataOptions) -> ImageSplits:
    """Split a tree that has one folder of images for each class.

    With `train/` and `val/` below `folder` (ImageNet's layout), `val` is the test set; if there is
    also a `test/`, `val` is for validation. In a plain tree of class folders, the test set is a
    tenth of the images, always the same. If the tree has no validation set of its own, one is held
    out of the training set: a tenth, at most 10,000 images.
    """
    if not folder.is_dir():
        raise MissingDataError(_layout(f"there is no folder {folder}"))
    if not (folder / "train").is_dir():
        return _plain(folder, options)
    classes = _classes(folder / "train")
    train = _images(folder / "train", classes)
    own = [_images(folder / part, classes) for part in ("val", "test") if (folder / part).is_dir()]
    if not own:
        raise MissingDataError(_layout(f"{folder} has the folder 'train' but not 'val'"))
    if len(own) == 1 or options.validation_images is not None:
        train, validation = _held_out(train, options)
    else:
        train, _ = _held_out(train, replace(options, validation_images=0))
        validation = own[0]
    return ImageSplits(classes, train, validation, own[-1])


def _plain(folder: Path, options: DataOptions) -> ImageSplits:
    classes = _classes(folder)
    images = _images(folder, classes)
    rest, test = split_off_test(len(images), max(1, _tenth(images)))
    train, validation = _held_out(images.take(rest), options)
    return ImageSplits(classes, train, validation, images.take(test))


def _held_out(images: ImageList, options: DataOptions) -> tuple[ImageList, ImageList]:
    trained, held_out = hold_out(len(images), options, validation_images=_tenth(images))
    return images.take(trained), images.take(held_out)


def _tenth(images: ImageList) -> int:
    return min(len(images) // 10, _MOST_HELD_OUT)


def _classes(folder: Path) -> tuple[str, ...]:
    classes = tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))
    if len(classes) < 2:
        raise MissingDataError(_layout(f"{folder} has {len(classes)} class folders"))
    return classes


def _images(folder: Path, classes: Sequence[str]) -> ImageList:
    strange = set(_classes(folder)) - set(classes)
    if strange:
        raise DamagedDataError(
            f"{folder} has classes that the training set lacks: {', '.join(sorted(strange)[:5])}"
        )
    files: list[bytes] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = sorted(
            str(path.relative_to(folder)).encode()
            for path in (folder / name).rglob("*")
            if path.suffix.lower() in _SUFFIXES
        )
        if not found:
            raise MissingDataError(f"{folder / name} holds no images of the class {name!r}")
        files += found
        labels += [label] * len(found)
    return ImageList(folder, np.array(files), np.array(labels, dtype=np.int64))


def _layout(problem: str) -> str:
    return (
        f"{problem}. Image folders need FOLDER/train/CLASS/*.jpg and FOLDER/val/CLASS/*.jpg, or "
        f"FOLDER/CLASS/*.jpg. (ImageNet cannot be fetched by a program: register and download "
        f"it at https://image-net.org/download-images)"
    )
