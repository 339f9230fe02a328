"""VGG networks for small images: stages of 3x3 convolutions with batch norm, one linear layer."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from prunus.errors import SettingError

_WIDTHS = (64, 128, 256, 512, 512)
_SMALLEST_IMAGE = 2 ** (len(_WIDTHS) - 1)


class Vgg(nn.Module):
    """Five stages with max-pooling between them; `depths` counts the convolutions of each.

    The paper's numbers of channels are divided by `narrower`.
    """

    def __init__(
        self, depths: Sequence[int], *, num_classes: int, channels: int, narrower: int = 1
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels
        widths = [width // narrower for width in _WIDTHS]
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            if stage:
                layers.append(nn.MaxPool2d(2))
            for _ in range(depth):
                conv = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
                nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
                layers += [conv, nn.BatchNorm2d(width), nn.ReLU()]
                inputs = width
        self.features = nn.Sequential(*layers)
        # 32x32 images leave 2x2 features and 16x16 images leave 1x1: the average fits both.
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.pool(self.features(x)).flatten(1))
        return logits


def _vgg(
    depths: Sequence[int], *, num_classes: int, image_size: int, channels: int, narrower: int = 1
) -> nn.Module:
    if image_size < _SMALLEST_IMAGE:
        raise SettingError(
            f"VGG halves its input four times, so images must measure at least "
            f"{_SMALLEST_IMAGE}x{_SMALLEST_IMAGE}, not {image_size}x{image_size}"
        )
    return Vgg(depths, num_classes=num_classes, channels=channels, narrower=narrower)


vgg16 = partial(_vgg, (2, 2, 4, 4, 4))
vgg16.__doc__ = (
    """What the paper calls VGG-16: 16 convolutions, eight blocks of two (its appendix G)."""
)
vgg16_quarter = partial(_vgg, (2, 2, 4, 4, 4), narrower=4)
vgg16_quarter.__doc__ = (
    """`vgg16` with a quarter of the channels: 1.25 million weights, fifteen times as fast."""
)
vgg16_13 = partial(_vgg, (2, 2, 3, 3, 3))
vgg16_13.__doc__ = """What most code calls VGG-16: 13 convolutions."""
