"""`penalty_cost="macs"`: a weight counts as often as it is used."""

import copy

import pytest
import torch
from torch import nn

from prunus import AttachError, ContinuousSparsification, SettingError
from prunus.gates.together import Apart


def network():
    # 2 * 1 * 3 * 3 = 18 weights at 6x6 positions; 4 * 2 = 8 at 3x3; 36 * 5 = 180 at one.
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1),
        nn.Conv2d(2, 4, 1, stride=2),
        nn.Flatten(),
        nn.Linear(36, 5),
    )


def attached(model, cost="macs"):
    return ContinuousSparsification(
        model, steps=4, select="all", penalty=0.5, penalty_cost=cost, mask_scale="none"
    )


def test_the_penalty_by_hand():
    model = network()
    cs = attached(model)
    model(torch.zeros(2, 1, 6, 6))
    # All gates are sigmoid(0) = 1/2. The mean cost is (18*36 + 8*9 + 180*1) / 206 = 900 / 206.
    unit = 900 / 206
    expected = 0.5 * 0.5 * (18 * 36 / unit + 8 * 9 / unit + 180 / unit)
    assert cs.penalty().item() == pytest.approx(expected)
    assert cs.penalty().item() == pytest.approx(attached(network(), "weights").penalty().item())


def test_the_gradient_of_a_score_is_in_proportion_to_its_cost():
    model = network()
    cs = attached(model)
    model(torch.zeros(2, 1, 6, 6))
    cs.penalty().backward()
    gradients = [gate.score.grad.flatten()[0].item() for gate in cs.gates.values()]
    assert gradients[0] / gradients[2] == pytest.approx(36)
    assert gradients[1] / gradients[2] == pytest.approx(9)


def test_forward_passes_before_the_first_penalty_change_nothing():
    once, often = network(), network()
    first, second = attached(once), attached(often)
    once(torch.zeros(2, 1, 6, 6))
    for size in (1, 5, 2):
        often(torch.zeros(size, 1, 6, 6))
    assert first.penalty().item() == second.penalty().item()


def test_nothing_is_left_on_the_model():
    model = network()
    cs = attached(model)
    copied = copy.deepcopy(model)
    copied(torch.zeros(1, 1, 6, 6))  # counts for itself
    with pytest.raises(AttachError, match="first forward pass"):
        cs.penalty()
    model(torch.zeros(1, 1, 6, 6))
    assert cs.penalty() > 0
    hooks = {type(hook) for module in model.modules() for hook in module._forward_hooks.values()}
    assert hooks == {Apart}, "of the gates, as long as these are there"
    cs.remove()
    assert not any(module._forward_hooks for module in model.modules())


def test_an_unknown_cost_is_refused():
    with pytest.raises(SettingError, match="penalty_cost='time' is not 'weights' or 'macs'"):
        attached(network(), "time")
