"""Small models of many kinds, each with an input, for the tests to share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

torch.set_num_threads(1)


class Zoo(NamedTuple):
    """How to build a model, and what to feed it."""

    build: Callable[[], nn.Module]
    input: Callable[[], Tensor]


def seeded(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A model with weights that depend on the seed alone."""
    torch.manual_seed(seed)
    return build()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3))


class ConvNet(nn.Module):
    """Two convolutions with BatchNorm, and a classifier that the paper's selection leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 4, 3, padding=1, bias=False)
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.conv1(x)))
        return self.fc(F.relu(self.conv2(x)).mean((2, 3)))


def conv1d() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Conv1d(4, 2, 3), nn.Flatten())


def conv3d() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 3, 3), nn.BatchNorm3d(3), nn.Conv3d(3, 2, 2), nn.Flatten())


def grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, groups=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 2, stride=2, groups=2),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 2, 1),
    )


def depthwise() -> nn.Module:
    def block(channels: int, out: int) -> list[nn.Module]:
        return [
            nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU6(),
            nn.Conv2d(channels, out, 1, bias=False),
            nn.BatchNorm2d(out),
        ]

    return nn.Sequential(
        *block(3, 6), *block(6, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    )


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return F.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet50(nn.Module):
    """All fifty layers of ResNet-50, an eighth as wide."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        inputs = width
        for stage, depth in enumerate((3, 4, 6, 3)):
            for i in range(depth):
                stride = 2 if i == 0 and stage > 0 else 1
                blocks.append(Bottleneck(inputs, width << stage, stride))
                inputs = 4 * (width << stage)
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))


class TiedTransformer(nn.Module):
    """A language model with one weight for its embedding and its output layer."""

    def __init__(self, tokens: int = 11, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, tokens)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens)))


class Recurrent(nn.Module):
    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.rnn = layer
        self.fc = nn.LazyLinear(3)
        self(torch.zeros(1, 2, layer.input_size))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.rnn(x)[0].mean(1))


def lstm() -> nn.Module:
    return Recurrent(nn.LSTM(4, 6, 2, bidirectional=True, proj_size=3, batch_first=True))


def gru() -> nn.Module:
    return Recurrent(nn.GRU(4, 5, batch_first=True))


class VisionTransformer(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, 4)
        self.position = nn.Parameter(torch.randn(1, 4, width) * 0.1)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.context = nn.Linear(width, 6)
        # Keys and values of other widths: three projections instead of a packed one.
        self.cross = nn.MultiheadAttention(width, 2, kdim=6, vdim=6, batch_first=True)
        self.fc = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = self.context(x)
        x = x + self.cross(self.norm(x), y, y)[0]
        return self.fc(x.mean(1))


def autoencoder() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 4, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 1, 4, 2, 1),
    )


class Twice(nn.Module):
    """Uses one module twice in a forward pass, under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.again = self.first
        self.fc = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.again(torch.tanh(self.first(x)))))


def images(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def tokens() -> Tensor:
    return torch.randint(11, (3, 6), generator=torch.Generator().manual_seed(1))


ZOO: dict[str, Zoo] = {
    "mlp": Zoo(mlp, images(5, 6)),
    "convnet": Zoo(ConvNet, images(4, 2, 6, 6)),
    "conv1d": Zoo(conv1d, images(3, 2, 9)),
    "conv3d": Zoo(conv3d, images(3, 1, 5, 5, 5)),
    "grouped": Zoo(grouped, images(2, 4, 5, 5)),
    "depthwise": Zoo(depthwise, images(4, 3, 6, 6)),
    "resnet50": Zoo(ResNet50, images(2, 3, 64, 64)),
    "transformer": Zoo(TiedTransformer, tokens),
    "lstm": Zoo(lstm, images(3, 5, 4)),
    "gru": Zoo(gru, images(3, 5, 4)),
    "vit": Zoo(VisionTransformer, images(3, 1, 8, 8)),
    "autoencoder": Zoo(autoencoder, images(2, 1, 8, 8)),
    "twice": Zoo(Twice, images(4, 5)),
}
