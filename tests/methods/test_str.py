"""Soft Threshold Reparameterisation, on a handful of weights."""

import math

import pytest
import torch
from test_imp import Two, kept

import prunus
from prunus import SoftThresholdReparameterisation
from prunus.errors import SearchWarning
from prunus.methods.soft_threshold import MOST, PULL
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()


def logit(p):
    return math.log(p / (1 - p))


def test_by_hand():
    model = Two()  # a: 0.1, -0.9, 0.3, 0.5; b: -0.2, 0.8
    method = SoftThresholdReparameterisation(model, steps=1, s_init=logit(0.25), select="all")
    assert kept(method.mask()) == ([[0, 1], [1, 1]], [[0, 1]]), "from the start"
    torch.testing.assert_close(model.a.weight, torch.tensor([[0.0, -0.65], [0.05, 0.25]]))
    with torch.no_grad():
        method.gates["a.weight"].score.fill_(logit(0.4))
    assert kept(method.mask())[0] == [[0, 1], [1, 1]], "the mask is that of the last step"
    method.step()
    assert kept(method.mask()) == ([[0, 1], [0, 1]], [[0, 1]])
    soft = model.a.weight.detach().clone()
    with method.hard():
        assert torch.equal(model.a.weight, soft)
    current = method.ticket("current").weights["a.weight"]
    mask = method.harden()
    assert torch.equal(model.a.weight, soft) and torch.equal(current, soft)
    assert all(gate.threshold.item() == 0 for gate in method.gates.values())
    assert mask == method.mask() and mask.kept == 3
    assert torch.equal(prunus.gates.plain_tensors(model)["a.weight"], soft), "folded"


def test_kept_weights_are_fine_tuned_freely():
    """Across where their threshold was, and through zero."""
    model = Two()
    method = SoftThresholdReparameterisation(model, steps=1, s_init=logit(0.25), select="all")
    mask = method.harden()
    with torch.no_grad():
        prunus.gates.plain_tensors(model)["a.weight"].fill_(-0.01)
    assert torch.equal(model.a.weight != 0, mask["a.weight"])
    assert model.a.weight[0, 1].item() == pytest.approx(-0.01)
    model(torch.ones(1, 2)).sum().backward()
    assert method.gates["a.weight"].score.grad is None
    prunus.strip(model)
    assert torch.equal(model.a.weight != 0, mask["a.weight"])


def test_groups():
    method = SoftThresholdReparameterisation(Two(), steps=100, threshold_decay=0.25, select="all")
    weights, scores = method.param_groups(0.1, weight_decay=0.5)
    assert (weights["lr"], weights["weight_decay"]) == (0.1, 0.5)
    assert (scores["lr"], scores["weight_decay"]) == (0.1, 0.25)
    method = SoftThresholdReparameterisation(Two(), steps=1000, select="all")
    assert method.param_groups(0.1)[1]["weight_decay"] == pytest.approx(PULL / 100)
    scores = method.param_groups(0.1, score_lr=0.2)[1]
    assert (scores["lr"], scores["weight_decay"]) == (0.2, pytest.approx(PULL / 200))
    assert method.param_groups(0.01)[1]["weight_decay"] == MOST


def test_a_larger_decay_keeps_fewer():
    densities = []
    for decay in (0.0, 0.01, 0.03):
        model = seeded(ConvNet)
        method = SoftThresholdReparameterisation(
            model, steps=30, s_init=-4.0, threshold_decay=decay
        )
        optimizer = torch.optim.SGD(method.param_groups(0.01, score_lr=0.1), momentum=0.9)
        for _ in range(30):
            (model(x) - 1).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            method.step()
        densities.append(method.commit().density)
    assert 1 > densities[0] > densities[1] > densities[2] > 0


def test_another_round_goes_on_from_its_thresholds():
    model = Two()
    method = SoftThresholdReparameterisation(
        model, steps=1, s_init=logit(0.4), select="all", rewind=True
    )
    method.step()
    first = method.end_round()
    assert method.gates["a.weight"].threshold.item() == pytest.approx(0.4)
    method.step()
    assert method.mask() == first


def test_nothing_left_says_what_helps():
    method = SoftThresholdReparameterisation(Two(), steps=1, s_init=5.0, select="all")
    with pytest.warns(SearchWarning, match="lower s_init"):
        method.commit()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"s_init": -math.inf}, "s_init=-inf"),
        ({"threshold_decay": -0.1}, "threshold_decay=-0.1"),
        ({"threshold_decay": math.nan}, "threshold_decay=nan"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(prunus.SettingError, match=message):
        SoftThresholdReparameterisation(Two(), steps=1, select="all", **settings)
