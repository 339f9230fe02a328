"""How images become the input of a network, and what its outputs stand for."""

from __future__ import annotations

import io
import math
import os
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.checks import shown, text
from prunus_runtime.errors import GraphError, InputError
from prunus_runtime.operation import Array, Shape
from prunus_runtime.printing import printable

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]
ORDERS = {"RGB": 3, "BGR": 3, "grey": 1}
"""Ways to order channels, and how many there are."""
MAX_PIXELS = 2**26
"""Of an image in a file, and of what it becomes before its middle is cut out."""
LARGE = 2**22
"""Pixels, above which images are decoded one at a time."""
_ONE_LARGE = threading.Lock()


@dataclass(frozen=True)
class Images:
    """What a network expects of an image, as its training prepared them.

    The shorter side becomes `short_side` pixels long, and the middle, as large as the network's
    input, is cut out. Then pixel values from 0 to `highest` become numbers from 0 to 1, from which
    `mean` is taken away and which are divided by `std`, each of these in the `order` of the
    channels. `classes` are the names of the network's outputs, if these are classes.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    short_side: int
    order: str = "RGB"
    highest: float = 255.0
    classes: tuple[str, ...] = ()

    def described(self) -> dict[str, Any]:
        """For the header of a file."""
        return asdict(self)

    @classmethod
    def parse(cls, entry: object) -> Images:
        """From the header of a file."""
        if not isinstance(entry, dict) or set(entry) != set(cls.__dataclass_fields__):
            raise GraphError(f"`images` is {shown(entry)}")
        for name in ("mean", "std", "classes"):
            if not isinstance(entry[name], list):
                raise GraphError(f"`images`: `{name}` is {shown(entry[name])}, not a list")
        lists = {name: tuple(value) for name, value in entry.items() if isinstance(value, list)}
        return cls(**{**entry, **lists})

    def check(self, input_shape: Shape, output_shape: Shape) -> None:
        """`GraphError` if these are no images for a network with such an input and output."""
        if not isinstance(self.order, str) or self.order not in ORDERS:
            raise GraphError(f"the order of channels is {shown(self.order)}, not one of {ORDERS}")
        channels = ORDERS[self.order]
        if len(input_shape) != 3 or input_shape[0] != channels:
            raise GraphError(f"{self.order} images do not fit an input of shape {input_shape}")
        numbers = (*self.mean, *self.std, self.highest)
        if len(self.mean) != channels or len(self.std) != channels:
            raise GraphError(f"the images' mean and std are not of {channels} channels")
        is_number = all(type(n) in (int, float) and abs(n) <= 1e9 for n in numbers)
        if not is_number or min(*self.std, self.highest) < 1e-9:
            raise GraphError(f"mean, std and highest value of images are {shown(numbers)}")
        side = max(input_shape[1:])
        if type(self.short_side) is not int or not side <= self.short_side <= 4 * side:
            raise GraphError(
                f"the images' short side is {shown(self.short_side)}, not from {side} to {4 * side}"
            )
        for name in self.classes:
            text(name, "the name of a class")
        if self.classes and (len(self.classes),) != output_shape:
            raise GraphError(
                f"there are names of {len(self.classes)} classes for outputs of {output_shape}"
            )
        if len(set(self.classes)) < len(self.classes):
            raise GraphError("two classes have the same name")

    def inputs(self, pixels: Pixels, input_shape: Shape) -> Array:
        """A batch of uint8 images, (n, channels, height, width) or (n, height, width, channels), as
        the network takes it."""
        channels, height, width = input_shape
        if pixels.shape[1:] == (height, width, channels):
            pixels = np.moveaxis(pixels, -1, 1)
        if pixels.shape[1:] != input_shape:
            raise InputError(
                f"the images have shape {pixels.shape}, not (n, {height}, {width}, {channels}) or "
                f"(n, {channels}, {height}, {width})"
            )
        shift, scale = (
            np.array(numbers, np.float32)[:, None, None] * np.float32(self.highest)
            for numbers in (self.mean, self.std)
        )
        result: Array = (pixels.astype(np.float32) - shift) / scale
        return result

    def read(self, source: str | os.PathLike[str] | bytes, input_shape: Shape) -> Pixels:
        """The JPEG or PNG at a path, or with this content, cut as the network sees it: (channels,
        height, width). Needs Pillow."""
        try:
            import PIL.Image
        except ImportError:
            raise InputError("reading image files needs Pillow: pip install pillow") from None
        what = "the image" if isinstance(source, bytes) else printable(str(source))
        try:
            file = io.BytesIO(source) if isinstance(source, bytes) else source
            with PIL.Image.open(file, formats=("JPEG", "PNG")) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise InputError(f"it has {image.width}x{image.height} pixels, too many")
                # A few kilobytes can hold half a gigabyte of pixels, and a server many threads.
                is_large = image.width * image.height > LARGE
                with _ONE_LARGE if is_large else nullcontext():
                    view = middle(
                        upright(image, "L" if self.order == "grey" else "RGB"),
                        *(input_shape[1], input_shape[2], self.short_side),
                    )
        except FileNotFoundError:
            raise InputError(f"{what} does not exist") from None
        except Exception as error:  # decoders of damaged files raise anything
            reason = printable(str(error))
            raise InputError(f"{what} cannot be read as JPEG or PNG: {reason}") from None
        pixels = view.reshape(*view.shape[:2], -1).transpose(2, 0, 1)
        return pixels[::-1] if self.order == "BGR" else pixels

    def probabilities(self, output: Array, top: int) -> list[dict[str, float]]:
        """The `top` classes of each image with their probabilities, the most probable first, from
        a network's output before softmax."""
        if not self.classes:
            raise InputError("the network's outputs are not classes")
        scores = output.astype(np.float64)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares = weights / weights.sum(axis=1, keepdims=True)
        best = np.argsort(-shares, axis=1, kind="stable")[:, :top]
        return [
            {self.classes[i]: float(row[i]) for i in places}
            for row, places in zip(shares, best.tolist(), strict=True)
        ]

    def __str__(self) -> str:
        lines = [
            f"images: {self.order}, pixel values from 0 to {self.highest:g} as numbers from 0 to 1",
            f"        mean {_numbers(self.mean)}, standard deviation {_numbers(self.std)}",
            f"        the shorter side becomes {self.short_side} pixels; the middle is cut out",
        ]
        if self.classes:
            lines.append(printable(f"{len(self.classes)} classes: {', '.join(self.classes)}"))
        return "\n".join(lines)


_ORIENTATION = 0x112
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
"""Orientation in the EXIF data -> the PIL.Image.Transpose that puts the image upright."""


def upright(image: Image, mode: str) -> Image:
    """An image as people see it, in the `mode` of Pillow: turned as its camera says, with the upper
    8 of 16 bits."""
    import PIL.Image

    try:
        turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # the pixels of damaged EXIF data may be whole
        turn = None
    if image.mode.startswith("I"):  # which Pillow would cut off above 255
        image = PIL.Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    image = image.convert(mode)
    return image if turn is None else image.transpose(PIL.Image.Transpose(turn))


def middle(image: Image, height: int, width: int, short_side: int) -> Pixels:
    """The middle of an image, after its shorter side became `short_side` long: (height, width) or
    (height, width, channels)."""
    import PIL.Image

    shorter = min(image.width, image.height)
    sizes = image.width * short_side // shorter, image.height * short_side // shorter
    if math.prod(sizes) > MAX_PIXELS:
        raise InputError(f"an image of {image.width}x{image.height} pixels is too long and narrow")
    resized = image.resize(sizes, PIL.Image.Resampling.BILINEAR)
    left, top = round((sizes[0] - width) / 2), round((sizes[1] - height) / 2)
    return np.array(resized.crop((left, top, left + width, top + height)))


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
