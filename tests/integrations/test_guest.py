"""What callbacks share."""

import pytest
import torch

import prunus
from prunus.integrations.guest import set_steps
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
