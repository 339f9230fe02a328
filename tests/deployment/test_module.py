"""The compacted network as a plain PyTorch module."""

from __future__ import annotations

import io

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from torch import nn

from prunus.deployment.module import to_module
from prunus_runtime import reference
from prunus_runtime.graph import Graph
from support.graphs import Builder, batch, graphs


@settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(graphs())
def test_modules_compute_what_their_graphs_do(graph: Graph) -> None:
    x = batch(graph, 2)
    expected = reference.run(graph, x)
    found = to_module(graph)(torch.from_numpy(x)).numpy()
    assert np.abs(found - expected).max() <= 1e-4 * max(1.0, np.abs(expected).max())


def network() -> Graph:
    net = Builder((3, 6, 6))
    x = net.activation(net.conv("x", 4, padding=(1, 0, 0, 2), plane=True))
    net.linear(net.add("flatten", x), 5)
    return net.graph()


def test_layers_are_standard_ones_with_their_names() -> None:
    module = to_module(network())
    layers = dict(module.named_modules())
    assert isinstance(layers["layer0"], nn.Conv2d) and isinstance(layers["layer3"], nn.Linear)
    assert set(module.state_dict()) == {
        *("layer0.weight", "layer0.bias", "layer0_plane", "layer3.weight", "layer3.bias")
    }
    assert "prunus" not in module.code  # type: ignore[operator]
    assert not any(type(m).__module__.startswith("prunus") for m in module.modules())


def test_it_can_be_saved_and_exported() -> None:
    module, x = to_module(network()), torch.randn(2, 3, 6, 6)
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(x), module(x))
    exported = torch.export.export(module, (x,)).module()
    assert torch.allclose(exported(x), module(x), atol=1e-6)
