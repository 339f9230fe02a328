"""The standard ImageNet augmentation of one image; a given generator decides all of it."""

import math
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from prunus.errors import SettingError
from prunus.tasks.data.errors import DamagedDataError
from prunus_runtime.images import middle, upright

if TYPE_CHECKING:
    from PIL.Image import Image

_AREA = (0.08, 1.0)
_ASPECT = (3 / 4, 4 / 3)
_ATTEMPTS = 10
_EVALUATION_MARGIN = 256 / 224
_BILINEAR = 2  # PIL.Image.Resampling.BILINEAR; Pillow is imported only where it is needed


def require_pillow() -> None:
    """Raise an error that says what to install if Pillow cannot be imported."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise SettingError(
            "reading image files needs Pillow, which is not installed: pip install pillow"
        ) from error


def read_image(path: Path) -> "Image":
    """The decoded image, in colour, as people see it."""
    import PIL.Image

    try:
        with PIL.Image.open(path) as image:
            return upright(image, "RGB")
    except FileNotFoundError as error:
        raise DamagedDataError(f"{path} has vanished since the run began") from error
    except Exception as error:  # a damaged file can make its decoder raise anything
        raise DamagedDataError(
            f"{path} cannot be read as an image ({error}); replace or delete it"
        ) from error


def shorter_side(path: Path) -> int | None:
    """Of an image, in pixels, without decoding it; None if it is damaged, which training tells."""
    import PIL.Image

    try:
        with PIL.Image.open(path) as image:
            return min(image.size)
    except Exception:  # decoders of damaged files raise anything
        return None


def training_view(image: "Image", size: int, random: Random) -> Tensor:
    """A random part of the image, resized to `size` and mirrored half of the time (uint8, CHW)."""
    left, top, width, height = random_box(image.width, image.height, random)
    box = (left, top, left + width, top + height)
    pixels = _pixels(image.resize((size, size), _BILINEAR, box=box))
    return pixels.flip(2) if random.random() < 0.5 else pixels


def random_box(width: int, height: int, random: Random) -> tuple[int, int, int, int]:
    """Left, top, width and height of a part with 8 to 100 % of the area and a sane aspect ratio."""
    for _ in range(_ATTEMPTS):
        area = width * height * random.uniform(*_AREA)
        aspect = math.exp(random.uniform(*map(math.log, _ASPECT)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    # Very wide or tall images: the largest part in the middle with a sane aspect ratio.
    w = min(width, max(1, round(height * _ASPECT[1])))
    h = min(height, max(1, round(width / _ASPECT[0])))
    return (width - w) // 2, (height - h) // 2, w, h


def evaluation_view(image: "Image", size: int) -> Tensor:
    """The middle, after resizing the shorter side to 256/224 of `size` (uint8, CHW)."""
    view = middle(image, size, size, evaluation_side(size))
    return torch.from_numpy(view).permute(2, 0, 1)


def evaluation_side(size: int) -> int:
    """How long the shorter side becomes before the middle is cut out."""
    return round(size * _EVALUATION_MARGIN)


def _pixels(image: "Image") -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
