"""AC/DC: its phases, and what a weight that comes back starts with, by hand."""

import pytest
import torch
from torch import nn

import prunus
from prunus.gates import gated_parameters
from support.models import ConvNet, seeded


def linear(**settings):
    """Four weights, of which the two largest are kept in sparse phases."""
    model = nn.Linear(4, 1, bias=False)
    acdc = prunus.AlternatingCompression(model, select="all", target_density=0.5, **settings)
    weight = gated_parameters(model)["weight"][1]
    with torch.no_grad():
        weight.copy_(torch.tensor([[4.0, -3.0, 2.0, 1.0]]))
    return acdc, weight


def test_the_phases_of_the_authors():
    """Cuts at epochs 10, 50, 90, 130 and 170 of 200, and all weights back at 30, 70, 110, 150."""
    acdc, _ = linear(steps=200)
    changes = []
    for t in range(1, 201):
        before = acdc.mask().density
        acdc.step()
        if acdc.mask().density != before:
            changes.append((t, acdc.mask().density))
    cuts = [t for t, density in changes if density == 0.5]
    openings = [t for t, density in changes if density == 1.0]
    assert cuts == [10, 50, 90, 130, 170]
    assert openings == [30, 70, 110, 150]


@pytest.mark.parametrize("steps", [7, 60, 1000, 7031])
@pytest.mark.parametrize("phase", [1 / 3, 0.1, 0.07, 0.01])
def test_it_ends_sparse_whatever_the_lengths(steps, phase):
    acdc, _ = linear(steps=steps, phase=phase)
    assert not acdc.is_sparse(0)
    assert all(acdc.is_sparse(t) for t in range(round(0.85 * steps) + 1, steps + 1))


def test_weights_that_come_back_start_at_zero():
    acdc, weight = linear(steps=10, start=0.1, phase=0.1, end=1.0)
    acdc.step()
    assert acdc.mask()["weight"].tolist() == [[True, True, False, False]]
    assert acdc.model.weight.tolist() == [[4.0, -3.0, 0.0, 0.0]]
    with torch.no_grad():
        weight.copy_(torch.tensor([[3.5, -2.5, 2.1, 0.9]]))  # momentum moves what is removed
    acdc.step()
    assert acdc.mask().density == 1.0
    assert weight.tolist() == [[3.5, -2.5, 0.0, 0.0]]
    with torch.no_grad():
        weight.copy_(torch.tensor([[3.5, -0.5, 0.6, 0.0]]))  # a new weight overtakes an old one
    acdc.step()
    assert acdc.mask()["weight"].tolist() == [[True, False, True, False]]


def test_weights_compete_in_the_whole_network():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    acdc = prunus.AlternatingCompression(model, select="all", target_density=0.5, steps=2, start=0)
    with torch.no_grad():
        for (_, weight), value in zip(gated_parameters(model).values(), (2.0, 1.0), strict=True):
            weight.fill_(value)
    acdc.on_commit(None)
    mask = acdc._cut()
    assert [layer.kept for layer in mask.layers] == [3, 0]


def test_a_round_that_ends_in_a_dense_phase_is_cut():
    acdc, _ = linear(steps=10)
    for _ in range(2):  # 0.2 is in the first dense phase
        acdc.step()
    assert acdc.mask().density == 1.0
    assert acdc.end_round()["weight"].tolist() == [[True, True, False, False]]
    for _ in range(10):
        acdc.step()
        assert acdc.mask().density == 0.5, "further rounds keep the mask"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"phase": 0.0}, "phase=0.0: a phase is a part of the round"),
        ({"start": 0.9, "end": 0.5}, "start=0.9 and end=0.5: the first sparse phase"),
        ({"end": 1.1}, "end=1.1"),
        ({"target_density": 0.0}, "target_density=0.0: "),
    ],
)
def test_bad_settings(bad, message):
    with pytest.raises(prunus.SettingError, match=message):
        prunus.AlternatingCompression(seeded(ConvNet), steps=10, **bad)
