"""Statistics, computed by hand."""

import json
import math

import pytest
import torch
from torch import nn

import prunus
from prunus.methods.common.statistics import Statistics
from support.models import ConvNet, seeded


def logit(p):
    return math.log(p / (1 - p))


@pytest.fixture
def method():
    model = nn.Sequential(nn.Linear(4, 1, bias=False), nn.Linear(1, 2, bias=False))
    cs = prunus.ContinuousSparsification(model, steps=2, select="all", final_temperature=4.0)
    cs.step()  # beta = 2
    with torch.no_grad():
        first = [logit(p) / 2 for p in (0.995, 0.6, 0.2, 0.002)]
        cs.gates["0.weight"].score.copy_(torch.tensor([first]))
        cs.gates["1.weight"].score.copy_(torch.tensor([[50.0], [-50.0]]))
    return cs


def test_by_hand(method):
    stats = method.stats()
    first, second = stats.layers
    assert (first.name, first.shape, first.weights, first.kept) == ("0.weight", (1, 4), 4, 2)
    assert first.hard_density == 0.5
    assert first.soft_density == pytest.approx((0.995 + 0.6 + 0.2 + 0.002) / 4)
    assert first.in_transition == 0.5
    assert (second.kept, second.soft_density, second.in_transition) == (1, 0.5, 0.0)
    assert (stats.weights, stats.kept, stats.hard_density) == (6, 3, 0.5)
    assert stats.soft_density == pytest.approx((1.797 + 1.0) / 6)
    assert stats.in_transition == pytest.approx(2 / 6)
    # Two in transition: of the first layer's two kept weights, and of three in all.
    assert (first.in_transition_per_kept, second.in_transition_per_kept) == (1.0, 0.0)
    assert stats.in_transition_per_kept == pytest.approx(2 / 3)


def test_as_data(method):
    data = method.stats().as_dict()
    assert json.loads(json.dumps(data))["kept"] == 3
    assert data["hard_density"] == 0.5
    assert [layer["name"] for layer in data["layers"]] == ["0.weight", "1.weight"]
    assert data["layers"][0]["hard_density"] == 0.5
    assert data["layers"][0]["weights"] == 4


def test_as_text(method):
    lines = str(method.stats()).splitlines()
    rows = [" ".join(line.split()) for line in lines]
    assert rows[0] == "parameter shape kept weights hard soft in transition per kept"
    assert rows[1] == "0.weight 1x4 2 4 50.00% 44.93% 50.00% 100.00%"
    assert rows[-2] == "total 3 6 50.00% 46.62% 33.33% 66.67%"
    assert rows[-1] == "network 3 6 50.00%"


def test_of_the_whole_network():
    model = nn.Sequential(nn.Linear(4, 1), nn.Linear(1, 2))  # 9 parameters, 4 of them with gates
    cs = prunus.ContinuousSparsification(model, steps=2, select="0.weight")
    with torch.no_grad():
        cs.gates["0.weight"].score.copy_(torch.tensor([[1.0, -1.0, -1.0, -1.0]]))
    stats = cs.stats()
    assert (stats.parameters, stats.hard_density) == (9, 0.25)
    assert stats.network_density == stats.as_dict()["network_density"] == pytest.approx(6 / 9)
    assert " ".join(str(stats).splitlines()[-1].split()) == "network 6 9 66.67%"


def test_coarse_gates_count_weights():
    cs = prunus.ContinuousSparsification(
        seeded(ConvNet), steps=2, select="conv1.weight", granularity="filter"
    )
    with torch.no_grad():
        cs.gates["conv1.weight"].score.copy_(torch.tensor([1.0, 2, 3, -1, -2, 0]).view(6, 1, 1, 1))
    [layer] = cs.stats().layers
    assert (layer.weights, layer.kept, layer.hard_density) == (108, 54, 0.5)


def test_density_is_of_the_hard_mask_not_of_underflow():
    model = nn.Linear(4, 1, bias=False)
    cs = prunus.ContinuousSparsification(model, steps=2, select="all")
    with torch.no_grad():
        cs.gates["weight"].score.copy_(torch.tensor([[-1e-6, -100.0, 1e-6, 100.0]]))
    assert cs.stats().hard_density == 0.5
    assert cs.stats().in_transition == 0.5


def test_magnitude_pruning_has_no_gates_in_transition():
    imp = prunus.IterativeMagnitudePruning(nn.Linear(10, 1), steps=1, select="all", rate=0.3)
    imp.end_round()
    stats = imp.stats()
    assert (stats.kept, stats.in_transition) == (7, 0.0)
    assert stats.soft_density == pytest.approx(stats.hard_density) == pytest.approx(0.7)


def test_no_layers_at_all():
    empty = Statistics((), 0)
    assert (empty.hard_density, empty.soft_density, empty.in_transition) == (0.0, 0.0, 0.0)
    assert empty.network_density == 0.0
    assert "total" in str(empty)
