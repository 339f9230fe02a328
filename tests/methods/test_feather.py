"""Feather: its operator and gradients by hand, its threshold and its schedule."""

import pytest
import torch
from torch import nn

import prunus
from prunus.gates import FeatherGate, gated_parameters
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()


def gate_at(threshold, weight, theta=1.0):
    gate = FeatherGate(weight, theta)
    gate.choose(weight.abs() > threshold, torch.tensor(threshold))
    return gate


def test_the_operator_by_hand():
    # (8 - 1)^(1/3) = 7^(1/3), (27 - 1)^(1/3) = 26^(1/3)
    w = torch.tensor([2.0, -3.0, 1.0, -0.5])
    shrunk = gate_at(1.0, w)(w)
    assert shrunk.tolist() == pytest.approx([7 ** (1 / 3), -(26 ** (1 / 3)), 0.0, 0.0])
    hard, soft = torch.tensor([2.0, -3.0, 0, 0]), torch.tensor([1.0, -2.0, 0, 0])
    assert bool((soft.abs() <= shrunk.abs()).all() and (shrunk.abs() <= hard.abs()).all())


@pytest.mark.parametrize("theta", [1.0, 0.5, 0.0])
def test_gradients_go_straight_through_and_are_scaled_below_the_threshold(theta):
    w = torch.tensor([2.0, -3.0, 1.0, -0.5], requires_grad=True)
    (gate_at(1.0, w, theta)(w) * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert w.grad.tolist() == [1.0, 2.0, 3 * theta, 4 * theta]


def test_a_threshold_of_zero_leaves_weights_as_they_are():
    w = torch.randn(1000)
    assert torch.equal(FeatherGate(w, 1.0)(w), w)


def four(**settings):
    model = nn.Linear(4, 1, bias=False)
    feather = prunus.Feather(model, select="all", **settings)
    with torch.no_grad():
        gated_parameters(model)["weight"][1].copy_(torch.tensor([[4.0, -3.0, 2.0, 1.0]]))
    return feather


def test_the_density_falls_to_the_target_in_the_first_half():
    feather = four(steps=8, target_density=0.25)
    densities = []
    for _ in range(8):
        feather.step()
        densities.append(feather.mask().density)
    # 0.25 + 0.75 * (1 - t / 4)^3 = 0.566, 0.344, 0.262, 0.25 of four weights
    assert densities == [0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25]
    gate = feather.gates["weight"]
    assert gate.threshold.item() == 3.0, "the largest of the removed weights"
    assert feather.model.weight[0].tolist() == pytest.approx([(64 - 27) ** (1 / 3), 0, 0, 0])


def test_hardening_writes_what_is_left_into_the_weights():
    feather = four(steps=2, target_density=0.5)
    feather.step()
    feather.harden()
    weight = gated_parameters(feather.model)["weight"][1]
    expected = [(64 - 8) ** (1 / 3), -((27 - 8) ** (1 / 3)), 0.0, 0.0]
    assert feather.model.weight[0].tolist() == pytest.approx(expected)
    assert feather.ticket("current").weights["weight"][0].tolist() == pytest.approx(expected)
    with torch.no_grad():
        weight[0, 0] = 0.25  # below the old threshold: kept all the same
    assert feather.model.weight[0, 0].item() == 0.25


def test_a_removed_weight_that_grows_comes_back():
    feather = four(steps=2, target_density=0.5)
    feather.step()
    assert feather.mask()["weight"].tolist() == [[True, True, False, False]]
    with torch.no_grad():
        gated_parameters(feather.model)["weight"][1][0, 3] = 9.0
    feather.step()
    assert feather.mask()["weight"].tolist() == [[True, False, False, True]]


@pytest.mark.parametrize(("density", "theta"), [(0.05, 1.0), (0.049, 0.5), (0.5, 1.0)])
def test_the_gradient_scale_of_the_authors(density, theta):
    feather = prunus.Feather(seeded(ConvNet), steps=2, target_density=density, select="all")
    assert feather.gates["conv1.weight"].theta == theta


def test_one_threshold_for_the_whole_network():
    feather = prunus.Feather(seeded(ConvNet), steps=4, target_density=0.3, select="all")
    for _ in range(4):
        feather.model(x).square().mean().backward()
        feather.step()
    assert len({gate.threshold.item() for gate in feather.gates.values()}) == 1
    for name, (_, weight) in gated_parameters(feather.model).items():
        gate = feather.gates[name]
        assert torch.equal(gate.kept, weight.abs() > gate.threshold)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"theta": 2.0}, "theta=2.0: the factor is from 0 to 1"),
        ({"start": 0.6}, "start=0.6 and end=0.5: the density falls"),
        ({"target_density": 2}, "target_density=2: "),
    ],
)
def test_bad_settings(bad, message):
    with pytest.raises(prunus.SettingError, match=message):
        prunus.Feather(seeded(ConvNet), steps=10, **bad)
