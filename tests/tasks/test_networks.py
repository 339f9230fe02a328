import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from prunus.errors import SettingError
from prunus.tasks.networks import NETWORKS, build_network, cifar_resnet


def build(name: str, *, num_classes: int = 10, image_size: int = 32, channels: int = 3):
    return build_network(name, num_classes=num_classes, image_size=image_size, channels=channels)


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize(("image_size", "channels"), [(16, 1), (32, 3)])
def test_every_network_maps_a_batch_to_logits_and_trains(
    name: str, image_size: int, channels: int
) -> None:
    network = build(name, num_classes=7, image_size=image_size, channels=channels)
    logits = network(torch.randn(2, channels, image_size, image_size))
    assert logits.shape == (2, 7)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("name", ["mlp", "lenet", "digits_convnet", "vit", "conv6", "resnet20"])
def test_digits_fit(name: str) -> None:
    assert build(name, image_size=8, channels=1)(torch.randn(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_mnist_fits(name: str) -> None:
    network = build(name, image_size=28, channels=1).eval()
    assert network(torch.randn(1, 1, 28, 28)).shape == (1, 10)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet20", 269_722 + 2_752),  # the published 0.27M of option A, and two 1x1 shortcuts
        ("resnet56", 853_018 + 2_752),
        ("vgg16", 20_035_018),
        ("vgg16-13", 14_724_042),
        ("vgg16-quarter", 1_255_546),
        ("conv6", 2_262_602),
    ],
)
def test_parameters_on_cifar10(name: str, parameters: int) -> None:
    assert count(build(name)) == parameters


def test_parameters_of_mlp_on_mnist_are_those_of_lenet_300_100() -> None:
    assert count(build("mlp", image_size=28, channels=1)) == 266_610


def test_resnet50_has_the_size_and_the_names_of_torchvision() -> None:
    network = build("resnet50", num_classes=1000, image_size=224)
    assert count(network) == 25_557_032
    names = network.state_dict()
    assert len(names) == 320
    assert names["layer1.0.downsample.0.weight"].shape == (256, 64, 1, 1)
    assert names["layer4.2.bn3.running_var"].shape == (2048,)
    strided = {n for n, m in network.named_modules() if getattr(m, "stride", 1) == (2, 2)}
    assert {n for n in strided if n.endswith("conv1")} == {"conv1"}
    assert {"layer2.0.conv2", "layer3.0.conv2", "layer4.0.conv2"} < strided


def test_resnet20_has_two_pointwise_shortcuts() -> None:
    pointwise = [
        name
        for name, module in build("resnet20").named_modules()
        if isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1)
    ]
    assert pointwise == ["layer2.0.shortcut.0", "layer3.0.shortcut.0"]


def test_vgg16_has_the_convolutions_of_the_paper() -> None:
    modules = list(build("vgg16").modules())
    widths = [m.out_channels for m in modules if isinstance(m, nn.Conv2d)]
    assert widths == [64] * 2 + [128] * 2 + [256] * 4 + [512] * 8
    assert sum(isinstance(m, nn.MaxPool2d) for m in modules) == 4
    assert sum(isinstance(m, nn.Linear) for m in modules) == 1


def test_resnet_depth_must_be_6n_plus_2() -> None:
    with pytest.raises(SettingError, match=r"6n\+2 .* not 18; the nearest is 20"):
        cifar_resnet(18, num_classes=10, image_size=32, channels=3)


@pytest.mark.parametrize(("name", "size"), [("vgg16", 15), ("conv6", 7), ("lenet", 3), ("vit", 29)])
def test_images_that_do_not_fit(name: str, size: int) -> None:
    with pytest.raises(SettingError, match=f"{size}x{size}"):
        build(name, image_size=size)


def test_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(SettingError, match=r"no network named 'resnet-20'.* mean 'resnet20'"):
        build("resnet-20")
    with pytest.raises(SettingError, match="Known: conv6, "):
        build("zzz")


@pytest.mark.parametrize("what", ["num_classes", "image_size", "channels"])
def test_sizes_must_be_positive(what: str) -> None:
    with pytest.raises(SettingError, match=f"{what} must be at least 1, not 0"):
        build("mlp", **{what: 0})


@pytest.fixture
def user_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("user_networks")
    monkeypatch.setitem(sys.modules, "user_networks", module)
    return module


def test_a_users_function(user_module: ModuleType, trust: Callable[..., None]) -> None:
    trust("user_networks:tiny")
    user_module.tiny = lambda *, num_classes, image_size, channels: nn.Linear(
        channels * image_size, num_classes
    )
    network = build("user_networks:tiny")
    assert isinstance(network, nn.Linear)
    assert (network.in_features, network.out_features) == (96, 10)


def test_a_users_function_that_cannot_be_used(
    user_module: ModuleType, trust: Callable[..., None]
) -> None:
    trust(*(f"user_networks:{name}" for name in ("positional", "number", "nummber")))
    trust("no_such_package:f", ":f")
    user_module.positional = lambda num_classes: nn.Linear(1, num_classes)
    user_module.number = lambda **_: 3
    with pytest.raises(SettingError, match="must take the keywords num_classes, image_size"):
        build("user_networks:positional")
    with pytest.raises(SettingError, match=r"returned a int, not a torch\.nn\.Module"):
        build("user_networks:number")
    with pytest.raises(SettingError, match=r"no function .* 'nummber'.* mean 'number'"):
        build("user_networks:nummber")
    with pytest.raises(SettingError, match="cannot import 'no_such_package'"):
        build("no_such_package:f")
    with pytest.raises(SettingError, match=r"package\.module:function"):
        build(":f")


def test_packages_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("timm", "torchvision", "torchvision.models"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingError, match="pip install timm"):
        build("timm/resnet18")
    with pytest.raises(SettingError, match="pip install torchvision"):
        build("torchvision/resnet18")


def test_torchvision_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_model(name: str, *, weights: None, num_classes: int, **size: int) -> nn.Module:
        assert weights is None
        if size and name != "vit_b_16":
            raise TypeError("unexpected keyword image_size")
        return nn.Linear(size.get("image_size", 1), num_classes)

    fake = SimpleNamespace(list_models=lambda: ["resnet18", "vit_b_16"], get_model=get_model)
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=fake))
    monkeypatch.setitem(sys.modules, "torchvision.models", fake)
    assert build("torchvision/resnet18").in_features == 1
    assert build("torchvision/vit_b_16").in_features == 32
    with pytest.raises(SettingError, match="mean 'resnet18'"):
        build("torchvision/resnet-18")
    with pytest.raises(SettingError, match="3 channels, not 1"):
        build("torchvision/resnet18", channels=1)


def test_timm_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_model(name: str, *, pretrained: bool, num_classes: int, in_chans: int) -> nn.Module:
        assert name == "resnet18"
        assert not pretrained
        return nn.Linear(in_chans, num_classes)

    fake = SimpleNamespace(
        is_model=lambda name: name == "resnet18",
        list_models=lambda: ["resnet18"],
        create_model=create_model,
    )
    monkeypatch.setitem(sys.modules, "timm", fake)
    assert build("timm/resnet18", channels=1).in_features == 1
    with pytest.raises(SettingError, match="mean 'resnet18'"):
        build("timm/resnet_18")
