"""The networks of the paper and a few more, built by name."""

import inspect
from collections.abc import Callable
from functools import partial

from torch import nn

from prunus.errors import SettingError
from prunus.lookup import import_named, unknown
from prunus.tasks.networks.conv6 import conv6
from prunus.tasks.networks.external import timm_model, torchvision_model
from prunus.tasks.networks.resnet50 import resnet50
from prunus.tasks.networks.resnet_cifar import cifar_resnet, resnet20, resnet56
from prunus.tasks.networks.small import digits_convnet, lenet, mlp
from prunus.tasks.networks.vgg import vgg16, vgg16_13, vgg16_quarter
from prunus.tasks.networks.vit import vit

__all__ = ["CONVNETS", "NETWORKS", "build_network", "cifar_resnet", "find_network"]

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "conv6": conv6,
    "digits_convnet": digits_convnet,
    "lenet": lenet,
    "mlp": mlp,
    "resnet20": resnet20,
    "resnet50": resnet50,
    "resnet56": resnet56,
    "vgg16": vgg16,
    "vgg16-13": vgg16_13,
    "vgg16-quarter": vgg16_quarter,
    "vit": vit,
}
"""Every network that has a name of its own."""

CONVNETS = NETWORKS.keys() - {"lenet", "mlp", "vit"}
"""Those with at least half of their weights in convolutions."""


def build_network(name: str, *, num_classes: int, image_size: int, channels: int) -> nn.Module:
    """A new network with random weights for square images of `image_size` pixels.

    `name` is one that `find_network` knows.
    """
    sizes = {"num_classes": num_classes, "image_size": image_size, "channels": channels}
    for what, value in sizes.items():
        if value < 1:
            raise SettingError(f"{what} must be at least 1, not {value}")
    return find_network(name)(**sizes)


def find_network(name: str, *, task: str | None = None) -> Callable[..., nn.Module]:
    """What makes a network from the keywords `num_classes`, `image_size` and `channels`.

    `name` is one of `NETWORKS`, `torchvision/NAME`, `timm/NAME`, or `package.module:function`
    for a function that takes these keywords (see `prunus.lookup.trusting`). The error about one
    that nobody trusts says to give `--task` with the whole name of the `task`.
    """
    library, _, model = name.partition("/")
    if model and library in _LIBRARIES:
        return partial(_LIBRARIES[library], model)
    if ":" in name:
        function = import_named(name, option=f"--task {task or name}")
        return partial(_from_function, function, name)
    if name not in NETWORKS:
        raise unknown("network", name, NETWORKS)
    return NETWORKS[name]


_LIBRARIES = {"torchvision": torchvision_model, "timm": timm_model}


def _from_function(function: Callable[..., object], spec: str, **sizes: int) -> nn.Module:
    try:
        inspect.signature(function).bind(**sizes)
    except TypeError as error:
        raise SettingError(
            f"{spec!r} must take the keywords {', '.join(sizes)} and need no others: {error}"
        ) from error
    network = function(**sizes)
    if not isinstance(network, nn.Module):
        raise SettingError(f"{spec!r} returned a {type(network).__name__}, not a torch.nn.Module")
    return network
