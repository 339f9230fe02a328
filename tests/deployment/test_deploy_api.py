"""`prunus.deploy`: which weights it takes, what it returns, and what it falls back to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import prunus
import prunus_runtime
from prunus import DeployError, Manifest, Mask, Ticket
from support.deployable import Branching


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 4, 3),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


X = torch.randn(5, 2, 4, 4, generator=torch.Generator().manual_seed(1))


def mask(model: nn.Module) -> Mask:
    generator = torch.Generator().manual_seed(2)
    kept = {
        f"{i}.weight": torch.rand(model[i].weight.shape, generator=generator) < 0.3 for i in (0, 3)
    }
    kept["0.weight"][2] = False
    return Mask(kept)


def ticket(model: nn.Module, rewind_point: int | None) -> Ticket:
    return Ticket(mask(model), model.state_dict(), Manifest(rewind_point=rewind_point))


def expected(weights: nn.Module) -> torch.Tensor:
    model = network()
    model.load_state_dict(weights.state_dict())
    prunus.strip(mask(model).apply(model))
    with torch.no_grad():
        return model.eval()(X)


def test_the_weights_are_the_models_own_under_the_mask_of_the_ticket() -> None:
    trained = network(seed=1)
    before = {name: tensor.clone() for name, tensor in trained.state_dict().items()}
    for rewind_point in (0, None):  # early or not: these weights are not used
        deployed = prunus.deploy(trained, ticket(network(seed=2), rewind_point), X)
        assert torch.allclose(deployed(X), expected(trained), atol=1e-5)
    assert all(torch.equal(t, before[name]) for name, t in trained.state_dict().items())
    assert trained.training


def test_the_weights_can_be_the_tickets_if_they_are_trained() -> None:
    trained = network(seed=2)
    deployed = prunus.deploy(network(seed=1), ticket(trained, None), X, weights="ticket")
    assert torch.allclose(deployed(X), expected(trained), atol=1e-5)
    with pytest.raises(DeployError, match="early weights of step 7, to re-train from"):
        prunus.deploy(network(), ticket(trained, 7), X, weights="ticket")
    with pytest.raises(DeployError, match="needs a ticket"):
        prunus.deploy(network(), None, X, weights="ticket")


def test_a_model_under_a_method_is_deployed_with_its_hard_mask() -> None:
    model = network()
    cs = prunus.ContinuousSparsification(model, steps=1, mask_init=-0.1)
    with torch.no_grad():
        for gate in cs.gates.values():
            gate.score.copy_(torch.randn_like(gate.score))
    model.eval()
    with cs.hard(), torch.no_grad():
        result = model(X)
    for given in (None, cs.ticket()):
        assert torch.allclose(prunus.deploy(model, given, X)(X), result, atol=1e-5)
    everything = Mask({name: torch.ones_like(m) for name, m in cs.mask().items()})
    other = Ticket(everything, network().state_dict())
    with pytest.raises(DeployError, match="weights that the model's own gates remove"):
        prunus.deploy(model, other, X)


def test_arrays_and_tensors_files_and_the_module(tmp_path: Path) -> None:
    deployed = prunus.deploy(network(), ticket(network(), 0), X)
    result = deployed(X.numpy())
    assert isinstance(result, np.ndarray) and isinstance(deployed(X), torch.Tensor)
    np.testing.assert_allclose(deployed.module(X).numpy(), result, atol=1e-5)
    path = deployed.save(tmp_path / "model.prunus")
    np.testing.assert_allclose(prunus_runtime.load(path)(X.numpy()), result, atol=1e-5)
    assert np.abs(deployed.stored("fp16")(X.numpy()) - result).max() < 0.02


def test_the_report_says_what_happened() -> None:
    model = network()
    report = prunus.deploy(model, ticket(model, 0), X, threads=1).report()
    data = json.loads(json.dumps(report.as_dict()))
    assert data["before"]["weights"] == 2 * 6 * 9 + 6 * 4 * 9 + 16 * 3
    assert data["before"]["macs"] == 108 * 16 + 216 * 4 + 48
    assert data["before"]["kept_weights"] == mask(model).kept + 48
    assert data["after"]["weights"] < data["before"]["weights"]  # a filter is gone
    assert data["max_difference"] < 1e-5 and data["batch"] == 5
    assert set(data["milliseconds"]) == {
        *("deployed", "torch eager, plain", "torch eager, compacted", "ONNX Runtime, plain")
    }
    for text in ("multiply-adds", "Largest difference from the plain network", "images/s", "fp16"):
        assert text in str(report)


def test_what_cannot_be_captured_runs_stripped_and_says_why() -> None:
    model = Branching()
    deployed = prunus.deploy(model, None, torch.zeros(1, 4))
    x = torch.randn(3, 4)
    assert deployed.backend == "torch" and "cannot capture" in deployed.fallback
    assert torch.equal(deployed(x), model(x))
    assert deployed(x.numpy()).shape == (3, 4)
    assert "cannot capture" in str(deployed.report(speed=False))
    with pytest.raises(DeployError, match="no graph to save"):
        deployed.save("model.prunus")


def test_without_the_compiled_part_the_compacted_module_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from prunus_runtime import native

    monkeypatch.setattr(native, "available", lambda: False)
    monkeypatch.setattr(native, "why_not", lambda: "it was not compiled")
    deployed = prunus.deploy(network(), ticket(network(), 0), X)
    assert deployed.backend == "torch" and "it was not compiled" in deployed.fallback
    assert torch.allclose(deployed(X), expected(network()), atol=1e-5)


def test_a_model_that_does_nothing_runs_in_pytorch() -> None:
    """The runtime's graphs have at least one operation; such a model has none."""
    x = torch.randn(2, 3, 4, 4)
    deployed = prunus.deploy(nn.Dropout().eval(), None, x)
    assert deployed.fallback
    assert torch.equal(deployed(x), x)
