"""Networks that train in seconds: for digits, first trials and tests."""

from torch import nn

from prunus.errors import SettingError


def mlp(*, num_classes: int, image_size: int, channels: int) -> nn.Module:
    """Two hidden layers of 300 and 100 neurons (LeNet-300-100 of the lottery-ticket papers)."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * image_size**2, 300),
        nn.ReLU(),
        nn.Linear(300, 100),
        nn.ReLU(),
        nn.Linear(100, num_classes),
    )


def lenet(*, num_classes: int, image_size: int, channels: int) -> nn.Module:
    """LeNet-5 with ReLU, max-pooling and padded convolutions, so that it also takes 8x8 images."""
    _check_quarter("lenet", image_size)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * (image_size // 4) ** 2, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, num_classes),
    )


def digits_convnet(*, num_classes: int, image_size: int, channels: int) -> nn.Module:
    """Four 3x3 convolutions with batch norm and one linear layer, made for 8x8 images."""
    _check_quarter("digits_convnet", image_size)
    return nn.Sequential(
        *convolution(channels, 16),
        *convolution(16, 32),
        nn.MaxPool2d(2),
        *convolution(32, 32),
        *convolution(32, 64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, num_classes),
    )


def convolution(inputs: int, outputs: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    """A 3x3 convolution with batch norm and ReLU; the size of images stays."""
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return conv, nn.BatchNorm2d(outputs), nn.ReLU()


def _check_quarter(name: str, image_size: int) -> None:
    if image_size < 4:
        raise SettingError(
            f"{name} needs images of at least 4x4 pixels, not {image_size}x{image_size}"
        )
