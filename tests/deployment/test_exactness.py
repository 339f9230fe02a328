"""Every network of the paper and one for phones: captured, compacted and run, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prunus.deployment import capture, compact, fold, to_module
from prunus.tasks.networks import NETWORKS
from prunus_runtime import Deployed, reference
from support.deployable import Mobile, randomised
from support.native_paths import BATCHES, ISAS

SIZES = {"vgg16": 16, "vgg16-13": 16, "vgg16-quarter": 16, "resnet20": 16, "resnet50": 33}
LARGE = {"conv6", "vgg16", "vgg16-13", "resnet50"}
"""These get fewer weights and only the small batches, to save time."""


@pytest.mark.parametrize("name", [*sorted(NETWORKS), "mobile"])
@torch.no_grad()
def test_all_forms_of_a_network_compute_the_same(name: str) -> None:
    torch.manual_seed(0)
    size = SIZES.get(name, 8)
    if name == "mobile":
        model = randomised(Mobile(), 0.3)
    else:
        network = NETWORKS[name](num_classes=10, image_size=size, channels=3)
        model = randomised(network, 0.05 if name in LARGE else 0.4)
    batches = [n for n in BATCHES if n < 128 or name not in LARGE]
    x = torch.randn(max(batches), 3, size, size)
    expected = model.eval()(x).numpy()
    scale = np.abs(expected).max()
    assert scale > 0  # otherwise nothing would be compared

    def check(y: np.ndarray) -> None:
        assert np.abs(y - expected[: len(y)]).max() < 1e-4 * scale

    captured = capture(model, x[:2])
    graph = compact(captured)
    for changed in (captured, fold(captured), graph):
        check(to_module(changed)(x[:2]).numpy())
    check(reference.run(graph, x[:2].numpy()))
    for isa in ISAS:
        native = Deployed(graph, 2, isa=isa)
        for n in batches:
            check(native(x[:n].numpy()))
