"""Small images in memory: whole batches cropped, flipped and normalised on the training device."""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from prunus.errors import SettingError
from prunus.randomness import generator_for
from prunus.tasks.data.protocol import EpochPlan, LoaderOptions


class Batches:
    """A `Loader` over uint8 images (NCHW) and their labels, stored on the options' device.

    With a `seed` it is for training: every epoch has its own order, random crops (after zero
    padding of `padding` pixels on each side) and, if `flip`, random mirroring. All of these follow
    from (seed, epoch) and an image's position in the epoch. Without a seed it is for evaluation:
    every image once, in order, unchanged.

    Yields float32 images normalised by `mean` and `std` (of pixel values between 0 and 1) and
    int64 labels.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        options: LoaderOptions,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        seed: int | None = None,
        padding: int = 0,
        flip: bool = False,
    ) -> None:
        if seed is None and (padding or flip):
            raise SettingError("padding and flip are random: they need a seed")
        self._images = images.to(options.device)
        self._labels = labels.to(options.device)
        self._options = options
        self._normalise = Normalise(mean, std, options)
        self._seed = seed
        self._padding, self._flip = padding, flip
        self._plan = EpochPlan(len(images), options, seed)

    def __len__(self) -> int:
        """The number of batches in an epoch, the same on every rank."""
        return len(self._plan)

    def epoch(self, number: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of epoch `number` from `start_batch` on."""
        batches = self._plan.batches_from(start_batch)
        if self._seed is None:
            return self._in_order(batches)
        return self._shuffled(batches, generator_for(self._seed, number))

    def _in_order(self, batches: range) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in batches:
            here = self._plan.positions(batch)
            yield self._normalise(self._images[here]), self._labels[here]

    def _shuffled(
        self, batches: range, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        # Drawn for the whole epoch at once (a few ms), so that it can start at any batch.
        count, device = len(self._images), self._options.device
        order = torch.randperm(count, generator=generator).to(device)
        shifts = 2 * self._padding + 1
        corners = torch.randint(shifts, (2, count), generator=generator).to(device)
        mirrored = (torch.rand(count, generator=generator) < 0.5).to(device)
        for batch in batches:
            here = self._plan.positions(batch)
            images = self._images[order[here]]
            if self._padding:
                images = crop(images, self._padding, corners[0, here], corners[1, here])
            if self._flip:
                images = mirror(images, mirrored[here])
            yield self._normalise(images), self._labels[order[here]]


def crop(images: Tensor, padding: int, top: Tensor, left: Tensor) -> Tensor:
    """Pad NCHW images with zeros, then cut the old size out, each image at its own corner."""
    height, width = images.shape[2:]
    padded = F.pad(images, (padding,) * 4)
    # A view of every possible crop; one gather then takes one for each image.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(len(images), device=images.device), :, top, left]


def mirror(images: Tensor, mirrored: Tensor) -> Tensor:
    """Flip the NCHW images for which `mirrored` is true, left to right."""
    return torch.where(mirrored[:, None, None, None], images.flip(3), images)


class Normalise:
    """Turns uint8 images into float32 with (pixel / 255 - mean) / std, in the options' layout."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], options: LoaderOptions) -> None:
        # Made once: on a GPU, making small tensors for each batch would cause waits.
        self._shift = torch.tensor(mean, device=options.device)[:, None, None] * 255
        self._scale = torch.tensor(std, device=options.device)[:, None, None] * 255
        self._channels_last = options.channels_last

    def __call__(self, images: Tensor) -> Tensor:
        result = images.to(torch.float32).sub_(self._shift).div_(self._scale)
        # Reordered last: arithmetic with an innermost dimension of three is slow on CPUs.
        layout = torch.channels_last if self._channels_last else torch.contiguous_format
        return result.contiguous(memory_format=layout)
