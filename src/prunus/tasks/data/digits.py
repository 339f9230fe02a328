"""The handwritten digits that come with scikit-learn: real data without a download."""

import importlib
from typing import Any

import numpy as np
import torch

from prunus.errors import SettingError, how_to_install
from prunus.tasks.data.arrays import ArrayData, Split, array_data
from prunus.tasks.data.splits import DataOptions, split_off_test

_TEST_IMAGES = 797
_VALIDATION_IMAGES = 200
_BRIGHTEST = 16


def scikit_learn_datasets() -> Any:
    """The module of scikit-learn that holds small data sets."""
    try:
        return importlib.import_module("sklearn.datasets")
    except ImportError as error:
        raise SettingError(
            f"these data come with scikit-learn, which is not installed: {how_to_install('demo')}"
        ) from error


def digits(options: DataOptions) -> ArrayData:
    """1,797 images of 8x8 pixels; 797 of them, always the same, are the test set."""
    content = scikit_learn_datasets().load_digits()
    pixels = np.rint(content.images * (255 / _BRIGHTEST)).astype(np.uint8)
    everything = Split(
        torch.from_numpy(pixels).unsqueeze(1), torch.from_numpy(content.target).long()
    )
    rest, test = split_off_test(len(everything), _TEST_IMAGES)
    return array_data(
        everything.take(rest),
        everything.take(test),
        options,
        num_classes=10,
        validation_images=_VALIDATION_IMAGES,
    )
