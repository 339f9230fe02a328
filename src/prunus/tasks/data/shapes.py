"""Drawn images of overlapping shapes with noise, and the class of every pixel."""

from __future__ import annotations

import torch
from torch import Tensor

from prunus.randomness import generator_for

SHAPE_CLASSES = 4
"""Background, squares, discs and crosses."""


def draw_shapes(images: int, size: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Grey images (N x 1 x size x size), and the class of each pixel.

    Each image has a square, a disc and a cross, at random places, with random brightness, drawn in
    random order.
    """
    generator = generator_for(seed)
    grid = torch.arange(size, dtype=torch.float32)
    pixels = torch.zeros(images, size, size)
    classes = torch.zeros(images, size, size, dtype=torch.long)

    def uniform(low: float, high: float) -> Tensor:
        return (low + (high - low) * torch.rand(images, generator=generator))[:, None, None]

    order = torch.rand(images, SHAPE_CLASSES - 1, generator=generator).argsort(1)
    for layer in order.unbind(1):
        radius = uniform(size / 8, size / 4)
        y = (grid[:, None] - uniform(size / 8, 7 * size / 8)).abs()
        x = (grid[None, :] - uniform(size / 8, 7 * size / 8)).abs()
        square = torch.maximum(x, y) <= radius
        disc = x**2 + y**2 <= (1.1 * radius) ** 2
        cross = square & (torch.minimum(x, y) <= radius / 3)
        drawn = torch.stack([square, disc, cross])[layer, torch.arange(images)]
        pixels = torch.where(drawn, uniform(0.4, 1.0), pixels)
        classes = torch.where(drawn, layer[:, None, None] + 1, classes)
    noise = 0.2 * torch.randn(pixels.shape, generator=generator)
    return (pixels + noise).unsqueeze(1), classes
