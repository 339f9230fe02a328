"""Ten networks, captured, compacted and run by the native core, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prunus.deployment import capture, compact
from prunus.tasks.networks import NETWORKS
from prunus_runtime import Deployed
from support.deployable import Mobile, randomised
from support.native_paths import BATCHES, ISAS

pytestmark = pytest.mark.skipif(not ISAS, reason="the native core is not compiled")

SIZES = {"vgg16": 16, "vgg16-13": 16, "vgg16-quarter": 16, "resnet20": 16, "resnet50": 64}
LARGE = {"vgg16", "vgg16-13", "resnet50"}
"""These get only the small batches, to save time."""


@pytest.mark.parametrize("name", [*sorted(NETWORKS), "mobile"])
@torch.no_grad()
def test_the_native_core_computes_the_same(name: str) -> None:
    torch.manual_seed(0)
    size = SIZES.get(name, 8)
    if name == "mobile":
        model = randomised(Mobile(), 0.3)
    else:
        model = randomised(NETWORKS[name](num_classes=10, image_size=size, channels=3), 0.4)
    batches = [n for n in BATCHES if n < 128 or name not in LARGE]
    x = torch.randn(max(batches), 3, size, size)
    expected = model.eval()(x).numpy()
    scale = np.abs(expected).max()
    assert scale > 0  # otherwise nothing would be compared
    graph = compact(capture(model, x[:2]))
    for isa in ISAS:
        network = Deployed(graph, 2, isa=isa)
        for n in batches:
            assert np.abs(network(x[:n].numpy()) - expected[:n]).max() < 1e-4 * scale
