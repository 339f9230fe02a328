"""Conv-6, the network of the paper's appendices C and D (after Frankle and Carbin 2019)."""

from torch import nn

from prunus.errors import SettingError


def conv6(*, num_classes: int, image_size: int, channels: int) -> nn.Module:
    """Three blocks of two 3x3 convolutions and max-pooling, then three linear layers.

    There is no batch norm. Weights start from the Glorot normal distribution, as in the
    lottery-ticket papers.
    """
    if image_size < 8:
        raise SettingError(
            f"conv6 halves its input three times, so images must measure at least 8x8, "
            f"not {image_size}x{image_size}"
        )
    layers: list[nn.Module] = []
    inputs = channels
    for width in (64, 128, 256):
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        inputs = width
    layers.append(nn.Flatten())
    inputs *= (image_size // 8) ** 2
    for width in (256, 256):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    layers.append(nn.Linear(inputs, num_classes))
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)
