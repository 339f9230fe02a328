"""Capture: a network becomes a graph that computes the same."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from prunus import DeployError
from prunus.deployment import capture, compact, fold, to_module
from prunus_runtime import reference
from support.deployable import Branching, Mobile, randomised


def check(model: nn.Module, x: torch.Tensor) -> None:
    graph = capture(model, x)
    model.eval()
    with torch.no_grad():
        expected = model(x).numpy()
        scale = max(1.0, np.abs(expected).max())
        for changed in (graph, fold(graph), compact(graph)):
            assert np.abs(to_module(changed)(x).numpy() - expected).max() < 1e-4 * scale
    found = reference.run(compact(graph), x.numpy().astype(np.float32))
    assert np.abs(found - expected).max() < 1e-4 * scale


def test_a_mobile_network() -> None:
    torch.manual_seed(0)
    model = randomised(Mobile(), 0.6)
    x = torch.randn(3, 3, 9, 9)
    check(model, x)
    folded = fold(capture(model, x))
    # What is left is the model's own arithmetic: a factor, and a constant after an addition.
    assert sum(o.kind == "affine" for o in folded.operations) == 2
    layers = {o.layer for o in folded.operations}
    assert {"stem", "depthwise", "excitation.fc1", "fc"} <= layers


def test_capturing_leaves_the_model_alone() -> None:
    model = Mobile().train()
    before = copy.deepcopy(model.state_dict())
    calls = []
    model.fc.register_forward_hook(lambda *_: calls.append(1))
    capture(model, torch.randn(1, 3, 9, 9))
    assert model.training and model.drop.training and len(model.fc._forward_hooks) == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())


class Unknown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_an_unknown_operation_is_named_with_its_layer() -> None:
    with pytest.raises(DeployError, match=r"operation .*group_norm.* in the layer inner\.1"):
        capture(Unknown(), torch.zeros(1, 1, 4, 4))


def test_what_cannot_be_captured_says_what_still_works() -> None:
    with pytest.raises(DeployError, match=r"(?s)torch.export cannot capture.*prunus.strip"):
        capture(Branching(), torch.zeros(1, 4))


@pytest.mark.parametrize("example", [torch.zeros(4), [1, 2]], ids=["no batch", "a list"])
def test_wrong_examples(example: object) -> None:
    with pytest.raises(DeployError, match="must be one tensor, a batch"):
        capture(Branching(), example)  # type: ignore[arg-type]
