"""Layers in int8: which are chosen, what they read, and what becomes of them in files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import prunus
import prunus_runtime
from prunus import DeployError
from prunus.deployment.int8 import in_int8, int8_layers
from prunus_runtime import native
from prunus_runtime.native.interface import ConvParameters, Kernel
from prunus_runtime.planner import make_program
from support.deployable import Branching

X = torch.randn(9, 3, 10, 10, generator=torch.Generator().manual_seed(1))


class Network(nn.Module):
    """A dense layer, one of which few weights are kept, a residual sum, a strided layer, a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dense = nn.Conv2d(3, 16, 3, padding=1)
        self.sparse = nn.Conv2d(16, 16, 3, padding=1)
        self.wide = nn.Conv2d(16, 32, 3, padding=1, stride=2)
        self.grouped = nn.Conv2d(32, 32, 3, groups=4)
        self.head = nn.Linear(32, 5)
        with torch.no_grad():
            weight = self.sparse.weight
            weight *= torch.rand(weight.shape, generator=torch.Generator().manual_seed(2)) < 0.05

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.dense(x))
        x = torch.relu(x + self.sparse(x))
        x = torch.relu(self.grouped(torch.relu(self.wide(x))))
        return self.head(x.mean((2, 3)))


def packed_layers(graph: prunus_runtime.Graph) -> int:
    program = make_program(graph, "avx512", 16, 1)
    parameters = program.instructions["parameters"][program.instructions["kernel"] == Kernel.CONV]
    return int((parameters[:, ConvParameters._fields.index("scales")] >= 0).sum())


def test_layers_that_gain_are_rounded_and_others_are_not(tmp_path) -> None:
    exact = prunus.deploy(Network(), None, X, threads=1)
    network = exact.int8(X)
    assert network.exact is exact and int8_layers(network.graph) == ["dense", "wide"]
    before = {o.layer: o.tensors["weight"] for o in exact.graph.operations if o.is_layer}
    for operation in network.graph.operations:
        if operation.is_layer:
            weight = operation.tensors["weight"]
            is_rounded = operation.layer in ("dense", "wide")
            assert np.array_equal(weight, before[operation.layer]) != is_rounded
    result, expected = network(X).numpy(), exact(X).numpy()
    assert 0 < np.abs(result - expected).max() < 0.02 * np.abs(expected).max()
    np.testing.assert_allclose(network.module(X).numpy(), result, atol=1e-5)

    for store in ("fp32", "fp16", "int8"):
        again = prunus_runtime.load(network.save(tmp_path / "model.prunus", store), threads=1)
        assert int8_layers(again.graph) == ["dense", "wide"]
        assert np.abs(again(X.numpy()) - result).max() < 0.02 * np.abs(expected).max()
        if native.packs("avx512"):  # also from half precision, which has not these integers
            assert packed_layers(again.graph) == 2
    assert network.stored("int8").exact is exact


def test_the_report_compares_with_float32() -> None:
    report = prunus.deploy(Network(), None, X, threads=1).int8(X.numpy()).report()
    assert report.int8_layers == ["dense", "wide"]
    assert "2 of 5 layers compute in int8." in str(report)
    assert report.milliseconds["deployed, in float32"] > 0
    assert 1e-4 < report.max_difference < 0.02 * report.output_scale


def test_ranges_are_those_of_the_inputs() -> None:
    graph = prunus.deploy(Network(), None, X).graph
    x = np.concatenate([X.numpy(), np.full((1, 3, 10, 10), -2.5, np.float32)]).clip(-2.5, 7.7)
    x[0, 0, 0, 0] = 7.7
    first, *_, second = (o for o in in_int8(graph, x).operations if o.kind == "quantize")
    step = first.attributes["step"]
    assert step == pytest.approx(10.2 / 255) and first.attributes["zero"] == round(2.5 / step)
    assert second.attributes["zero"] == 0  # behind a ReLU
    silent = in_int8(graph, np.zeros((1, 3, 10, 10), np.float32))  # no range at all, yet valid
    assert np.isfinite(prunus_runtime.Deployed(silent, 1)(x)).all()


def test_a_layer_of_few_weights_gains_nothing() -> None:
    model = Network()
    with torch.no_grad():
        for layer in (model.dense, model.wide):
            layer.weight *= torch.rand(layer.weight.shape) < 0.05
    exact = prunus.deploy(model, None, X)
    assert int8_layers(exact.int8(X).graph) == []
    assert torch.equal(exact.int8(X)(X), exact(X))


def test_tokens_of_any_length() -> None:
    from prunus.tasks.networks.gpt import GPT

    torch.manual_seed(0)
    model = GPT(vocabulary=11, context=12, width=16, depth=2, heads=2).eval()
    tokens = torch.randint(0, 11, (5, 12), generator=torch.Generator().manual_seed(3))
    exact = prunus.deploy(model, None, tokens, threads=1)
    network = exact.int8(tokens)
    assert len(int8_layers(network.graph)) >= 8
    for length in (12, 7, 1):
        expected = exact(tokens[:, :length])
        assert (network(tokens[:, :length]) - expected).abs().max() < 0.05 * expected.abs().max()


def test_what_cannot_be() -> None:
    with pytest.raises(DeployError, match="needs some inputs of the network"):
        prunus.deploy(Network(), None, X).int8(X[:0])
    with pytest.raises(DeployError, match="no graph to compute in int8"):
        prunus.deploy(Branching(), None, torch.randn(2, 4)).int8(X)
