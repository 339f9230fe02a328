"""The cost model of the runtime, by hand; its calibration; the dense network beside it."""

import numpy as np
import pytest
import torch
from torch import nn

from prunus.deployment import capture, speed
from prunus.deployment.speed import CostModel, DenseNetwork, calibrate
from prunus.errors import DeployError, SettingError
from prunus.selection import choose
from support.models import seeded


def costs(*points):
    return CostModel(batch=1, threads=2, engine="ONNX Runtime", dense_seconds=8.0, points=points)


def network():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3)
    )


def test_between_two_points_by_hand():
    model = costs((0.1, 1.0), (0.5, 3.0), (1.0, 5.5))
    assert model.speedup(0.1) == 8 and model.speedup(0.3) == 4 and model.speedup(1.0) == 8 / 5.5
    assert model.macs_for(4) == 0.3 and model.macs_for(8) == 0.1
    assert model.macs_for(3.1) == pytest.approx(0.4161, abs=1e-9), "four digits"


def test_what_cannot_be_had_is_refused_with_what_can():
    model = costs((0.1, 0.97), (1.0, 5.0))
    message = r"with 10 % of the multiply-adds it is 8\.2\. Ask for 8\.2 at most"
    with pytest.raises(SettingError, match=r"9 against the dense network in ONNX .*" + message):
        model.macs_for(9)
    assert model.macs_for(8.2) > 0.1
    with pytest.raises(SettingError, match=r"with all its weights .* has 1\.60 already"):
        model.macs_for(1.5)
    with pytest.raises(SettingError, match="cannot be had"):
        model.macs_for(-1)


def test_noise_does_not_make_more_work_faster():
    model = costs((0.1, 2.0), (0.3, 1.9), (1.0, 4.0))
    assert model.speedup(0.3) == 4 and model.macs_for(4) <= 0.3 and model.macs_for(2.5) > 0.3


def test_a_calibration_times_random_masks_of_the_selected_weights(monkeypatch):
    model, seen = seeded(network), {}

    def medians(ways, _):
        for way in ways.values():
            way()
        return {name: 4.0 if name == "dense" else 1 + float(name) for name in ways}

    def kept(plain, example, graph, threads):
        seen[sum(np.count_nonzero(o.tensors["weight"]) for o in graph.operations if o.is_layer)] = 1
        return deployed(plain, example, graph, threads=threads)

    deployed = speed.Deployed
    monkeypatch.setattr(speed, "medians", medians)
    monkeypatch.setattr(speed, "Deployed", kept)
    monkeypatch.setattr(speed, "DENSITIES", (1.0, 0.25, 0.01))
    found = calibrate(model, choose(model, "conv"), torch.zeros(2, 1, 4, 4), threads=1)
    assert found.points == ((0.01, 1.01), (0.25, 1.25), (1.0, 2.0))
    assert (found.batch, found.threads, found.dense_seconds) == (2, 1, 4.0)
    linear = 3 * 64  # not selected
    assert sorted(seen) == [linear + 1, linear + 9, linear + 36]


def test_masks_are_the_same_every_time():
    graph = capture(seeded(network), torch.zeros(1, 1, 4, 4))
    first, again = (speed._thinned(graph, {"3"}, 0.1) for _ in range(2))
    for a, b in zip(first.operations, again.operations, strict=True):
        assert all(np.array_equal(a.tensors[name], b.tensors[name]) for name in a.tensors)


def test_a_network_that_the_runtime_cannot_run():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4))
    with pytest.raises(DeployError, match="group_norm"):
        calibrate(model, choose(model, "conv"), torch.zeros(1, 1, 4, 4), threads=1)


def test_the_dense_network_with_and_without_onnx_runtime(monkeypatch):
    pytest.importorskip("onnxruntime")
    model, x = seeded(network).eval(), torch.randn(3, 1, 4, 4)
    with_onnx = DenseNetwork(model, x, threads=1)
    monkeypatch.setattr(speed, "has_onnx", lambda: False)
    without = DenseNetwork(model, x, threads=1)
    assert (with_onnx.engine, without.engine) == ("ONNX Runtime", "PyTorch")
    for dense in (with_onnx, without):
        assert np.allclose(dense(x.numpy()), model(x).detach().numpy(), atol=1e-5)
