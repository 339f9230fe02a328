"""ResNet-50 for ImageNet, with torchvision's parameter names, so that its weights load."""

import torch.nn.functional as F
from torch import Tensor, nn

from prunus.tasks.networks.resnet_cifar import make_shortcut

_EXPANSION = 4


class Bottleneck(nn.Module):
    """Convolutions of 1x1, 3x3 (with the stride) and 1x1, beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * _EXPANSION
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = make_shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet50(nn.Module):
    """A 7x7 stem, four stages of 3, 4, 6 and 3 bottlenecks, average pooling, one linear layer."""

    def __init__(self, *, num_classes: int, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, blocks=3, stride=1)
        self.layer2 = _stage(256, 128, blocks=4, stride=2)
        self.layer3 = _stage(512, 256, blocks=6, stride=2)
        self.layer4 = _stage(1024, 512, blocks=3, stride=2)
        self.fc = nn.Linear(512 * _EXPANSION, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


def _stage(inputs: int, width: int, *, blocks: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        Bottleneck(inputs, width, stride),
        *(Bottleneck(width * _EXPANSION, width, stride=1) for _ in range(blocks - 1)),
    )


def resnet50(
    *,
    num_classes: int,
    image_size: int,  # noqa: ARG001 (any size works: the features are averaged)
    channels: int,
) -> nn.Module:
    """ResNet-50 with the stride on the 3x3 convolutions (25,557,032 parameters on ImageNet)."""
    return ResNet50(num_classes=num_classes, channels=channels)
