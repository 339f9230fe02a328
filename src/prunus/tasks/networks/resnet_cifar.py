"""Residual networks for small images (He et al. 2016, section 4.2), with 6n+2 layers.

Where the shape changes, the shortcut is a 1x1 convolution with batch norm (option B) named
`shortcut`; the paper does not sparsify these two layers.
"""

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from prunus.errors import SettingError


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = make_shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def make_shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The identity or, where the shape changes, a 1x1 convolution with batch norm."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    conv = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class CifarResNet(nn.Module):
    """A stem, three stages of 16, 32 and 64 channels, global average pooling, one linear layer."""

    def __init__(self, depth: int, *, num_classes: int, channels: int) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if blocks < 1 or rest:
            near = 6 * max(1, round((depth - 2) / 6)) + 2
            raise SettingError(
                f"a ResNet for small images has 6n+2 layers (8, 14, 20, ...), not {depth}; "
                f"the nearest is {near}"
            )
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, stride=1)
        self.layer2 = _stage(16, 32, blocks, stride=2)
        self.layer3 = _stage(32, 64, blocks, stride=2)
        self.fc = nn.Linear(64, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


def _stage(inputs: int, outputs: int, blocks: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(
        BasicBlock(inputs, outputs, stride),
        *(BasicBlock(outputs, outputs, stride=1) for _ in range(blocks - 1)),
    )


def cifar_resnet(
    depth: int,
    *,
    num_classes: int,
    image_size: int,  # noqa: ARG001 (any size works: the features are averaged)
    channels: int,
) -> nn.Module:
    """A residual network of `depth` = 6n+2 layers, for images of any size."""
    return CifarResNet(depth, num_classes=num_classes, channels=channels)


resnet20 = partial(cifar_resnet, 20)
resnet20.__doc__ = "The paper's residual network of 20 layers (elsewhere also called ResNet-18)."

resnet56 = partial(cifar_resnet, 56)
resnet56.__doc__ = "Like resnet20, with 56 layers."
