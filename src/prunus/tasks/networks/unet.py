"""A small U-Net: a class for every pixel."""

import torch
from torch import Tensor, nn

from prunus.tasks.networks.small import convolution


class UNet(nn.Module):
    """Two levels down, two up; on the way up each level also gets what it saw on the way down.

    The sides of the images must be divisible by four.
    """

    def __init__(self, *, num_classes: int, channels: int, width: int = 16) -> None:
        super().__init__()
        self.down1 = nn.Sequential(*convolution(channels, width))
        self.down2 = nn.Sequential(*convolution(width, 2 * width))
        self.bottom = nn.Sequential(*convolution(2 * width, 2 * width))
        self.up2 = nn.Sequential(*convolution(4 * width, width))
        self.up1 = nn.Sequential(*convolution(2 * width, width))
        self.head = nn.Conv2d(width, num_classes, 1)
        self.halve = nn.MaxPool2d(2)
        self.enlarge = nn.Upsample(scale_factor=2, mode="nearest")

    def forward(self, images: Tensor) -> Tensor:
        fine = self.down1(images)
        coarse = self.down2(self.halve(fine))
        bottom = self.bottom(self.halve(coarse))
        coarse = self.up2(torch.cat([self.enlarge(bottom), coarse], dim=1))
        fine = self.up1(torch.cat([self.enlarge(coarse), fine], dim=1))
        logits: Tensor = self.head(fine)
        return logits
