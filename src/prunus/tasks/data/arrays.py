"""Data sets small enough to live in memory, as uint8 tensors."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from prunus.errors import SettingError
from prunus.tasks.data.batches import Batches
from prunus.tasks.data.protocol import LoaderOptions
from prunus.tasks.data.splits import DataOptions, SplitName, hold_out
from prunus_runtime.images import Images

_CHUNK = 5_000


@dataclass(frozen=True)
class Split:
    """Images (uint8, NCHW) and their labels (int64)."""

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.dim() != 4:
            raise SettingError(
                f"images must be uint8 of four dimensions (NCHW), not {self.images.dtype} "
                f"of shape {tuple(self.images.shape)}"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise SettingError(
                f"labels must be one int64 for each of {len(self.images)} images, "
                f"not {self.labels.dtype} of shape {tuple(self.labels.shape)}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Tensor) -> "Split":
        """The images at these indices, copied."""
        return Split(self.images[indices], self.labels[indices])

    def resized(self, size: int) -> "Split":
        """The same images made smaller by averaging squares of pixels."""
        side = self.images.shape[-1]
        if size == side:
            return self
        if size > side or side % size:
            fits = [d for d in range(1, side + 1) if side % d == 0]
            raise SettingError(
                f"images of {side}x{side} pixels cannot be averaged to {size}x{size}; "
                f"sizes that fit: {', '.join(map(str, fits))}"
            )
        chunks = (
            F.avg_pool2d(chunk.float(), side // size).round_().to(torch.uint8)
            for chunk in torch.split(self.images, _CHUNK)
        )
        return Split(torch.cat(list(chunks)), self.labels)


@dataclass(frozen=True)
class ArrayData:
    """A whole data set: its splits, and how to normalise and augment it.

    `validation` was held out of the official training set. `padding` and `flip` are the random
    crop and mirroring that suit the data.
    """

    train: Split
    validation: Split
    test: Split
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int = 0
    flip: bool = False
    classes: tuple[str, ...] = ()

    @property
    def images(self) -> Images:
        """Of its own size, normalised; classes without names are called by their numbers."""
        order = "grey" if self.channels == 1 else "RGB"
        classes = self.classes or tuple(map(str, range(self.num_classes)))
        return Images(self.mean, self.std, self.image_size, order, classes=classes)

    @property
    def image_size(self) -> int:
        """The side of the square images in pixels."""
        return self.train.images.shape[-1]

    @property
    def channels(self) -> int:
        """1 for grey, 3 for colour."""
        return self.train.images.shape[1]

    @property
    def fingerprint(self) -> str:
        """Empty: name and options determine the data, wherever the files are."""
        return ""

    def training(self, options: LoaderOptions, *, seed: int) -> Batches:
        """Shuffled and augmented batches of the training set."""
        return Batches(
            self.train.images,
            self.train.labels,
            options,
            mean=self.mean,
            std=self.std,
            seed=seed,
            padding=self.padding,
            flip=self.flip,
        )

    def evaluation(self, split: SplitName, options: LoaderOptions) -> Batches:
        """Every image of a split once, in order, without augmentation."""
        part: Split = getattr(self, split)
        return Batches(part.images, part.labels, options, mean=self.mean, std=self.std)


def array_data(
    train: Split,
    test: Split,
    options: DataOptions,
    *,
    num_classes: int,
    validation_images: int,
    augment: bool = False,
    classes: tuple[str, ...] = (),
) -> ArrayData:
    """Cut an official training and test set as `options` ask.

    Mean and deviation come from the whole official training set, so they do not depend on which
    part of it is used. `augment` asks for random crops, after padding by an eighth, and mirroring.
    """
    if options.image_size is not None:
        train, test = train.resized(options.image_size), test.resized(options.image_size)
    mean, std = pixel_statistics(train.images)
    trained, held_out = hold_out(len(train), options, validation_images=validation_images)
    return ArrayData(
        train=train.take(trained),
        validation=train.take(held_out),
        test=test,
        num_classes=num_classes,
        mean=mean,
        std=std,
        padding=train.images.shape[-1] // 8 if augment else 0,
        flip=augment,
        classes=classes,
    )


def pixel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, for pixel values between 0 and 1."""
    values = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    # Counts are exact, so the result does not depend on threads or memory layout.
    for channel in images.unbind(1):
        share = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()
        mean = (share * values).sum()
        means.append(mean.item())
        deviations.append((share * (values - mean) ** 2).sum().sqrt().item())
    # A channel without contrast carries nothing; any divisor will do, except zero.
    return tuple(means), tuple(deviation or 1.0 for deviation in deviations)
