"""Large images from files, decoded and augmented by worker processes."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from prunus.errors import SettingError
from prunus.randomness import seed_for
from prunus.tasks.data.batches import Normalise
from prunus.tasks.data.errors import DamagedDataError
from prunus.tasks.data.image_transforms import (
    evaluation_side,
    evaluation_view,
    read_image,
    require_pillow,
    shorter_side,
    training_view,
)
from prunus.tasks.data.image_tree import ImageList, ImageSplits, read_tree
from prunus.tasks.data.protocol import EpochPlan, LoaderOptions
from prunus.tasks.data.splits import DataOptions, SplitName
from prunus_runtime.images import Images
from prunus_runtime.printing import printable

_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)
_IMAGE_SIZE = 224
"""ImageNet's habit, and the largest size that is chosen by the images."""
_SIZE_STEP = 32
"""What networks halve their images by, in all."""
_LOOKED_AT = 50
"""Images, to choose a size by."""
_WORKER_TIMEOUT = 300
"""After so many seconds without a batch, workers count as stuck."""
_LONGEST_TEMPORARY_FOLDER = 75
"""The path of a socket has at most 108 bytes, and multiprocessing takes 32 of them."""


@dataclass(frozen=True)
class ImageFolderData:
    """A tree of image files; `image_size` is the side of what the network sees."""

    splits: ImageSplits
    image_size: int
    channels: int = 3
    size_chosen: bool = False
    """Whether the size follows from the images, because nobody gave one."""

    @property
    def num_classes(self) -> int:
        """The number of class folders."""
        return len(self.splits.classes)

    @property
    def images(self) -> Images:
        """As `evaluation` prepares them, and the names of the class folders."""
        short_side = evaluation_side(self.image_size)
        return Images(_MEAN, _STD, short_side, classes=tuple(map(printable, self.splits.classes)))

    @property
    def fingerprint(self) -> str:
        """That of the tree, because any tree can be at the data root."""
        size = f"-{self.image_size}" if self.size_chosen and self.image_size != _IMAGE_SIZE else ""
        return self.splits.fingerprint() + size

    def training(self, options: LoaderOptions, *, seed: int) -> "ImageBatches":
        """Shuffled batches of random parts of the training images, mirrored at random."""
        return ImageBatches(self.splits.train, options, image_size=self.image_size, seed=seed)

    def evaluation(self, split: SplitName, options: LoaderOptions) -> "ImageBatches":
        """The middle of every image of a split once, in order."""
        return ImageBatches(getattr(self.splits, split), options, image_size=self.image_size)


def image_folder(folder: Path, options: DataOptions) -> ImageFolderData:
    """Images of your own, in a folder for each class (`--data FOLDER`); resized to one size.

    `read_tree` has the layouts. Unless the options say otherwise, the network sees images about as
    large as the files are, but no larger than those of ImageNet.
    """
    require_pillow()
    splits = read_tree(folder, options)
    if options.image_size is not None:
        return ImageFolderData(splits, options.image_size)
    return ImageFolderData(splits, _usual_size(splits.train), size_chosen=True)


def imagenet(folder: Path, options: DataOptions) -> ImageFolderData:
    """ImageNet, or a tree like it, in its usual size."""
    require_pillow()
    return ImageFolderData(read_tree(folder, options), options.image_size or _IMAGE_SIZE)


def _usual_size(images: ImageList) -> int:
    """The shorter side of the image in the middle of some, down to a multiple of 32."""
    numbers = range(0, len(images), -(-len(images) // _LOOKED_AT))
    sides = sorted(filter(None, (shorter_side(images.path(number)) for number in numbers)))
    if not sides:
        return _IMAGE_SIZE
    side = sides[len(sides) // 2] // _SIZE_STEP * _SIZE_STEP
    return max(_SIZE_STEP, min(_IMAGE_SIZE, side))


def _check_temporary_folder() -> None:
    # Workers pass on batches through sockets in this folder. If its path is too long for a socket,
    # they and the training wait for each other.
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > _LONGEST_TEMPORARY_FOLDER:
        raise SettingError(
            f"the folder for temporary files has too long a path for worker processes: {folder}; "
            "set TMPDIR to a shorter one, such as /tmp, or use --workers 0"
        )


class ImageBatches:
    """A `Loader` over image files: for training with a `seed`, for evaluation without.

    The part that is cut from an image follows from (seed, epoch, image), so neither the number of
    workers nor where an epoch is resumed makes a difference.
    """

    def __init__(
        self, images: ImageList, options: LoaderOptions, *, image_size: int, seed: int | None = None
    ) -> None:
        if options.workers:
            _check_temporary_folder()
        self._options = options
        self._normalise = Normalise(_MEAN, _STD, options)
        self._plan = EpochPlan(len(images), options, seed)
        self._order = _EpochOrder(self._plan)
        self._loader = DataLoader(
            _ImageBatch(images, image_size, seed),
            sampler=self._order,
            batch_size=None,  # the sampler hands out whole batches
            num_workers=options.workers,
            persistent_workers=options.workers > 0,
            timeout=_WORKER_TIMEOUT if options.workers else 0,
            pin_memory=options.device.type == "cuda",
            # Without one, DataLoader draws from the global generator at every epoch, and a resumed
            # run would no longer equal an uninterrupted one.
            generator=torch.Generator(),
        )

    def __len__(self) -> int:
        """The number of batches in an epoch, the same on every rank."""
        return len(self._plan)

    def epoch(self, number: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of epoch `number` from `start_batch` on; one epoch at a time."""
        self._order.move_to(number, self._plan.batches_from(start_batch))
        return self._batches()

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        device = self._options.device
        for batch in self._loader:
            if isinstance(batch, DamagedDataError):
                raise batch
            images, labels = (part.to(device, non_blocking=True) for part in batch)
            yield self._normalise(images), labels


@dataclass(frozen=True)
class _Request:
    epoch: int
    indices: list[int]


class _EpochOrder(Sampler[_Request]):
    """Asks for one batch after the other; lives in the main process only."""

    def __init__(self, plan: EpochPlan) -> None:
        self._plan = plan
        self._epoch, self._batches = 0, range(0)

    def move_to(self, epoch: int, batches: range) -> None:
        self._epoch, self._batches = epoch, batches

    def __iter__(self) -> Iterator[_Request]:
        epoch = self._epoch
        order = self._plan.order(epoch)
        for batch in self._batches:
            yield _Request(epoch, order[self._plan.positions(batch)].tolist())


class _ImageBatch(Dataset[tuple[Tensor, Tensor] | DamagedDataError]):
    """Reads a whole batch. Pixels stay uint8: a quarter of the bytes between processes."""

    def __init__(self, images: ImageList, size: int, seed: int | None) -> None:
        self._images, self._size, self._seed = images, size, seed

    def __getitem__(self, request: _Request) -> tuple[Tensor, Tensor] | DamagedDataError:
        views = torch.empty((len(request.indices), 3, self._size, self._size), dtype=torch.uint8)
        try:
            for view, index in zip(views, request.indices, strict=True):
                view.copy_(self._view(request.epoch, index))
        except DamagedDataError as error:
            # Returned, because what a worker raises reaches the user as nested tracebacks.
            return error
        return views, torch.from_numpy(self._images.labels[request.indices])

    def _view(self, epoch: int, index: int) -> Tensor:
        image = read_image(self._images.path(index))
        if self._seed is None:
            return evaluation_view(image, self._size)
        return training_view(image, self._size, Random(seed_for(self._seed, epoch, index)))
