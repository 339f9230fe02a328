"""What callbacks share."""

import pytest
import torch

import prunus
from prunus.integrations.guest import Guest, set_steps
from support.models import ConvNet, images, seeded

x = images(8, 2, 5, 5)()


def test_steps_that_come_late_are_as_good_as_early_ones():
    settings = {"target_density": 0.3, "select": "all", "seed": 0}
    early = prunus.RigL(seeded(ConvNet, 0), steps=6, **settings)
    late = prunus.RigL(seeded(ConvNet, 0), steps=10**9, **settings)
    set_steps(late, 6)
    for method in (early, late):
        optimizer = torch.optim.SGD(method.param_groups(0.1))
        for _ in range(6):
            method.model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            method.step()
    assert early.mask() == late.mask()
    assert early.settings == late.settings


def test_a_rewind_point_beyond_the_steps_is_refused():
    method = prunus.ContinuousSparsification(seeded(ConvNet, 0), steps=9, rewind_step=5)
    with pytest.raises(prunus.SettingError, match="rewind_step=5 is not among the 4 steps of this"):
        set_steps(method, 4)


@pytest.mark.parametrize(
    ("method", "settings", "scale"),
    [
        ("cs", {"target_density": 0.3}, "settling"),
        ("cs", {"target_macs": 0.3}, "settling"),
        ("cs", {"target_density": 0.3, "mask_scale": "init"}, "init"),
        ("cs", {"target_density": 0.3, "scores": "optimiser"}, "init"),
        ("cs", {"mask_init": -0.1}, "init"),
        ("gmp", {"target_density": 0.3}, None),
    ],
)
def test_the_model_is_taken_for_a_trained_one(method, settings, scale):
    guest = Guest(prunus.METHODS[method], settings)
    guest.attach(seeded(ConvNet, 0))
    assert guest.present.settings.get("mask_scale") == scale
