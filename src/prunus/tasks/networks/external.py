"""Models of torchvision and timm, where these optional packages are installed and import."""

import importlib
from collections.abc import Callable
from types import ModuleType

from torch import nn

from prunus.errors import SettingError
from prunus.lookup import unknown


def torchvision_model(name: str, *, num_classes: int, image_size: int, channels: int) -> nn.Module:
    """A torchvision classification model, untrained; these take three channels only."""
    models = _import("torchvision.models", "torchvision")
    if name not in models.list_models():
        raise unknown("torchvision model", name, models.list_models())
    if channels != 3:
        raise SettingError(
            f"torchvision models take images of 3 channels, not {channels}; "
            f"timm models (timm/NAME) take any number"
        )
    return _sized(
        lambda **size: models.get_model(name, weights=None, num_classes=num_classes, **size),
        image_size=image_size,
    )


def timm_model(name: str, *, num_classes: int, image_size: int, channels: int) -> nn.Module:
    """A timm model, untrained."""
    timm = _import("timm", "timm")
    if not timm.is_model(name):
        raise unknown("timm model", name, timm.list_models())
    return _sized(
        lambda **size: timm.create_model(
            name, pretrained=False, num_classes=num_classes, in_chans=channels, **size
        ),
        img_size=image_size,
    )


def _sized(build: Callable[..., nn.Module], **size: int) -> nn.Module:
    # Transformers must know the image size; convolutional models refuse the argument.
    try:
        return build(**size)
    except TypeError:
        return build()


def _import(module: str, package: str) -> ModuleType:
    # torchvision raises RuntimeError, not ImportError, when it was built for another torch.
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise SettingError(
            f"models named {package}/... need the package {package!r}, which does not import "
            f"here ({error}). Install the version that fits your torch: pip install {package}"
        ) from error
