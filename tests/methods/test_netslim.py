"""Network Slimming, on a handful of weights."""

import math

import pytest
import torch
from test_imp import Two, kept

import prunus
from prunus import NetworkSlimming


def test_by_hand():
    model = Two()
    inputs = torch.tensor([[1.0, 2.0]])
    plain = model(inputs)
    slim = NetworkSlimming(model, steps=1, target_density=0.5, penalty=0.1, select="all")
    assert torch.equal(model(inputs), plain), "attaching changes nothing"
    with torch.no_grad():
        slim.gates["a.weight"].scaling.copy_(torch.tensor([[0.9, -0.1], [0.0, 0.4]]))
        slim.gates["b.weight"].scaling.copy_(torch.tensor([[-0.8, 0.3]]))
    penalty = slim.penalty()
    assert penalty.item() == pytest.approx(0.1 * 2.5)
    penalty.backward()
    expected = torch.tensor([[0.1, -0.1], [0.0, 0.1]])
    torch.testing.assert_close(slim.gates["a.weight"].scaling.grad, expected)
    assert slim.mask().density == 1.0, "nothing is removed before the round commits"
    slim.step()
    mask = slim.harden()
    assert kept(mask) == ([[1, 0], [0, 1]], [[1, 0]])
    torch.testing.assert_close(model.a.weight, torch.tensor([[0.09, 0.0], [0.0, 0.2]]))
    torch.testing.assert_close(model.b.weight, torch.tensor([[0.16, 0.0]]))
    ticket = slim.ticket("current")
    torch.testing.assert_close(ticket.weights["a.weight"], model.a.weight.detach())
    assert torch.equal(slim.ticket().weights["a.weight"], torch.tensor([[0.1, 0.0], [0.0, 0.5]]))


def test_kept_weights_are_fine_tuned_as_they_are():
    """A factor would slow its weight down by its square: `harden` multiplies it in."""
    model = Two()
    slim = NetworkSlimming(model, steps=1, target_density=1.0, penalty=0.0, select="all")
    with torch.no_grad():
        for gate in slim.gates.values():
            gate.scaling.fill_(0.5)
    slim.harden()
    before = model.b.weight.detach().clone()
    optimizer = torch.optim.SGD(slim.param_groups(0.1))
    model(torch.ones(1, 2)).sum().backward()
    hidden = model.a(torch.ones(1, 2)).detach()
    optimizer.step()
    torch.testing.assert_close(model.b.weight, before - 0.1 * hidden)


def test_hard_before_a_commit_is_the_soft_network():
    model = Two()
    slim = NetworkSlimming(model, steps=1, scaling_init=0.3, select="all")
    soft = model(torch.ones(1, 2))
    with slim.hard():
        assert torch.equal(model(torch.ones(1, 2)), soft)


def test_groups():
    slim = NetworkSlimming(Two(), steps=1, select="all")
    weights, factors = slim.param_groups(0.1, weight_decay=0.5)
    assert (weights["lr"], weights["weight_decay"]) == (0.1, 0.5)
    assert (factors["lr"], factors["weight_decay"]) == (0.1, 0.0)
    assert slim.param_groups(0.1, scaling_lr=2.0)[1]["lr"] == 2.0
    assert {id(p) for p in factors["params"]} == {id(g.scaling) for g in slim.gates.values()}


def test_another_round_decides_anew():
    model = Two()
    slim = NetworkSlimming(model, steps=1, target_density=1 / 3, select="all")
    first = slim.end_round()
    assert first.kept == 2 and slim.mask() == first
    slim.step()
    assert slim.mask().density == 1.0
    with torch.no_grad():
        slim.gates["b.weight"].scaling.fill_(7.0)
    assert kept(slim.end_round()) == ([[0, 0], [0, 0]], [[1, 1]])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_density": 0.0}, "target_density=0.0"),
        ({"target_density": 1.5}, "target_density=1.5"),
        ({"penalty": math.nan}, "penalty=nan"),
        ({"scaling_init": 0.0}, "scaling_init=0.0"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(prunus.SettingError, match=message):
        NetworkSlimming(Two(), steps=1, select="all", **settings)
