"""Which samples of a data set are for training, for validation and for the test."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from prunus.errors import SettingError
from prunus.randomness import generator_for

SplitName = Literal["train", "validation", "test"]

# Users' split seeds are never negative: the test set is the same for all of them.
_TEST_SEED = -1


@dataclass(frozen=True)
class DataOptions:
    """How to cut a data set. None means everything, or the default of the data set.

    If the samples are not images, `train_images` and `validation_images` count samples.
    """

    image_size: int | None = None
    """Make images smaller by averaging: CIFAR's 32 pixels can become 16, 8, ..."""
    train_images: int | None = None
    """Use only this many images of the training set, after shuffling."""
    validation_images: int | None = None
    """How many images of the training set to hold out for validation."""
    split_seed: int = 0
    """Decides which images are held out."""

    def __post_init__(self) -> None:
        for name, least in (("image_size", 1), ("train_images", 1), ("validation_images", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise SettingError(f"{name} must be at least {least}, not {value}")
        if self.split_seed < 0:
            raise SettingError(f"split_seed must be 0 or more, not {self.split_seed}")


def hold_out(images: int, options: DataOptions, *, validation_images: int) -> tuple[Tensor, Tensor]:
    """Indices for training and for validation among `images`, shuffled by the split seed.

    `validation_images` is the default of the data set, which the options may override.
    """
    if options.validation_images is not None:
        validation_images = options.validation_images
    left = images - validation_images
    wanted = left if options.train_images is None else options.train_images
    if not 1 <= wanted <= left:
        raise SettingError(
            f"{images} training images less {validation_images} for validation leave "
            f"{max(left, 0)}, but {max(wanted, 1)} are wanted; lower train_images or "
            f"validation_images"
        )
    order = torch.randperm(images, generator=generator_for(options.split_seed))
    return order[validation_images:][:wanted], order[:validation_images]


def split_off_test(images: int, test_images: int) -> tuple[Tensor, Tensor]:
    """Indices of the rest, and of a test set that is the same in every run; in random order."""
    order = torch.randperm(images, generator=generator_for(_TEST_SEED))
    return order[test_images:], order[:test_images]
