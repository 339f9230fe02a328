"""A small U-Net: a class for every pixel."""

import torch
from torch import Tensor, nn


class UNet(nn.Module):
    """Two levels down, two up; on the way up each level also gets what it saw on the way down.

    The sides of the images must be divisible by four.
    """

    def __init__(self, *, num_classes: int, channels: int, width: int = 16) -> None:
        super().__init__()
        self.down1 = _convolutions(channels, width)
        self.down2 = _convolutions(width, 2 * width)
        self.bottom = _convolutions(2 * width, 2 * width)
        self.up2 = _convolutions(4 * width, width)
        self.up1 = _convolutions(2 * width, width)
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


def _convolutions(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )
