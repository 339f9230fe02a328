"""Discovering Neural Wirings, on a handful of weights."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_imp import Two, kept, weights

import prunus
from prunus import DiscoveringNeuralWirings
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()


def test_by_hand():
    model = Two()  # a: 0.1, -0.9, 0.3, 0.5; b: -0.2, 0.8
    dnw = DiscoveringNeuralWirings(model, steps=3, target_density=0.5, select="all")
    assert kept(dnw.mask()) == ([[0, 1], [0, 1]], [[0, 1]]), "from the start"
    optimizer = torch.optim.SGD(dnw.param_groups(1.0))
    # b = (0, 0.8), a @ x = (-0.9, 0.5) * 1: dL/da = (0, 0.8) x, dL/db = (-0.9, 0.5)
    model(torch.tensor([[1.0, 1.0]])).sum().backward()
    optimizer.step()
    trained = weights(model)
    torch.testing.assert_close(trained["a.weight"], torch.tensor([[0.1, -0.9], [-0.5, -0.3]]))
    torch.testing.assert_close(trained["b.weight"], torch.tensor([[0.7, 0.3]]))
    dnw.step()
    # A removed weight of each layer has come back, in exchange for another one.
    assert kept(dnw.mask()) == ([[0, 1], [1, 0]], [[1, 0]])
    mask = dnw.harden()
    assert kept(mask) == ([[0, 1], [1, 0]], [[1, 0]])
    torch.testing.assert_close(model.b.weight, torch.tensor([[0.7, 0.0]]))


def test_global_scope():
    dnw = DiscoveringNeuralWirings(
        Two(), steps=1, target_density=1 / 3, scope="global", select="all"
    )
    assert kept(dnw.mask()) == ([[0, 1], [0, 0]], [[0, 1]])


def test_every_layer_keeps_something():
    dnw = DiscoveringNeuralWirings(Two(), steps=1, target_density=0.125, select="all")
    assert kept(dnw.mask()) == ([[0, 1], [0, 0]], [[0, 1]])


@settings(max_examples=20)
@given(st.floats(0.01, 1.0), st.sampled_from(["layer", "global"]), st.integers(0, 99))
def test_the_density_is_exact_and_the_kept_are_the_largest(density, scope, seed):
    model = seeded(ConvNet, seed)
    dnw = DiscoveringNeuralWirings(model, steps=1, target_density=density, scope=scope)
    mask, trained = dnw.mask(), weights(model)
    groups = [[n] for n in mask] if scope == "layer" else [list(mask)]
    for names in groups:
        keep = torch.cat([mask[n].flatten() for n in names])
        size = torch.cat([trained[n].abs().flatten() for n in names])
        assert keep.sum() == max(1, round(density * len(keep)))
        if not keep.all():
            assert size[keep].min() >= size[~keep].max()


def test_the_mask_follows_every_step():
    model = seeded(ConvNet)
    dnw = DiscoveringNeuralWirings(model, steps=9, target_density=0.2)
    optimizer = torch.optim.SGD(dnw.param_groups(0.5), momentum=0.9)
    masks = [dnw.mask()]
    for _ in range(6):
        (model(x) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        dnw.step()
        masks.append(dnw.mask())
    assert len({mask.kept for mask in masks}) == 1 and masks[-1] != masks[0]
    final = dnw.mask()
    for name, (gate, _) in prunus.gates.gated_parameters(model).items():
        assert torch.equal(gate.mask(), final[name])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"target_density": 0.0}, "target_density=0.0"),
        ({"target_density": 2.0}, "target_density=2.0"),
        ({"scope": "everywhere"}, "scope='everywhere'"),
    ],
)
def test_bad_settings(bad, message):
    with pytest.raises(prunus.SettingError, match=message):
        DiscoveringNeuralWirings(Two(), steps=1, select="all", **bad)
