"""Budgets of multiply-adds: met on networks of five kinds, and refused where they cannot be."""

import copy
import re

import pytest
import torch
from torch import nn

import prunus
from prunus import AttachError, ContinuousSparsification, SettingError
from prunus.tasks.networks import build_network
from support.models import ZOO, seeded


def named(name, size, channels=3):
    def build():
        return build_network(name, num_classes=10, image_size=size, channels=channels)

    return build, torch.zeros(2, channels, size, size)


NETWORKS = {
    "resnet20": named("resnet20", 16),
    "vgg16-quarter": named("vgg16-quarter", 32),
    "lenet": named("lenet", 28, 1),
    "vit": named("vit", 16),
    "autoencoder": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.Conv2d(16, 32, 3, 2, 1),
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ConvTranspose2d(16, 1, 4, 2, 1),
        ),
        torch.zeros(2, 1, 16, 16),
    ),
}  # fmt: skip


def macs_kept(model, example, mask):
    """The kept fraction of the multiply-adds, counted by torch's own counter."""
    from torch.utils.flop_counter import FlopCounterMode

    plain = copy.deepcopy(model)
    prunus.remove(plain)
    with FlopCounterMode(display=False) as counter:
        plain(example)
    counts = counter.get_flop_counts()
    costs = {}
    for name in mask:
        # It does not count inside of attention, whose weights are used as those beside it.
        beside = re.sub(r"attention\..*", "mlp.0.weight", name)
        path = f"{type(plain).__name__}.{beside.rpartition('.')[0]}"
        costs[name] = sum(counts[path].values()) / plain.get_parameter(beside).numel()
    kept = sum(costs[layer.name] * layer.kept for layer in mask.layers)
    return kept / sum(costs[layer.name] * layer.total for layer in mask.layers)


def noise(method, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for gate in method.gates.values():
            gate.score.add_(torch.randn(gate.score.shape, generator=generator))


def search(build, example, **settings):
    model = seeded(build).eval()
    cs = ContinuousSparsification(model, steps=3, select="all", **settings)
    model(example)
    for number in range(3):
        noise(cs, number)
        cs.step()
    return cs, model


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("target", [0.3, 0.03])
def test_multiply_adds_alone(name, target):
    build, example = NETWORKS[name]
    cs, model = search(build, example, target_macs=target)
    mask = cs.harden()
    assert macs_kept(model, example, mask) == pytest.approx(target, abs=0.001)
    assert cs.settings["target_density"] is None


@pytest.mark.parametrize("name", NETWORKS)
def test_multiply_adds_and_density_together(name):
    build, example = NETWORKS[name]
    target = {"vit": 0.1, "autoencoder": 0.12}.get(name, 0.08)  # what so many weights can have
    cs, model = search(build, example, target_density=0.1, target_macs=target)
    mask = cs.harden()
    assert mask.kept == round(0.1 * mask.total)
    assert macs_kept(model, example, mask) == pytest.approx(target, abs=0.001)


@pytest.mark.parametrize("method", ["mp", "gmp", "netslim", "dnw"])
@pytest.mark.parametrize(
    "budget", [{"target_macs": 0.05}, {"target_macs": 0.08, "target_density": 0.1}]
)
def test_methods_that_rank_weights(method, budget):
    build, example = NETWORKS["lenet"]
    model = seeded(build).eval()
    more = {"scope": "global"} if method in ("gmp", "dnw") else {}
    attached = prunus.METHODS[method](model, steps=2, select="all", **more, **budget)
    if method == "netslim":
        with torch.no_grad():
            for gate in attached.gates.values():
                gate.scaling.uniform_(generator=torch.Generator().manual_seed(0))
    model(example)
    for _ in range(2):
        attached.step()
    mask = attached.commit()
    assert macs_kept(model, example, mask) == pytest.approx(budget["target_macs"], abs=0.001)
    if "target_density" in budget:
        assert mask.kept == round(0.1 * mask.total)


def test_by_hand():
    # Four weights that are used at four positions each, and four that are used at one.
    model = nn.Sequential(nn.Conv2d(1, 4, 1, bias=False), nn.MaxPool2d(2), nn.Flatten())
    model.append(nn.Linear(4, 1, bias=False))
    cs = ContinuousSparsification(model, steps=1, select="all", target_macs=0.5)
    model(torch.zeros(1, 1, 2, 2))
    with torch.no_grad():
        cs.gates["0.weight"].score.copy_(torch.tensor([1.0, 8.0, 2.0, 2.8]).view(4, 1, 1, 1))
        cs.gates["3.weight"].score.copy_(torch.tensor([[1.2, 3.0, 0.9, 0.2]]))
    # By score for the root of the cost: 8/2, 3, 2.8/2, 1.2 are 4 + 1 + 4 + 1 of 20. That is half.
    # For the cost itself, 0.9 would come before 2.8/4; and by score alone 2 before 1.2.
    mask = cs.harden()
    assert mask["0.weight"].flatten().int().tolist() == [0, 1, 0, 1]
    assert mask["3.weight"].flatten().int().tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_density": 0.5, "target_macs": 0.01}, r"from [\d.]+ ?% to [\d.]+ ?% of the mul"),
        ({"target_density": 0.01, "target_macs": 0.9}, "choose others, or give one of the two"),
        ({"target_macs": 0.001, "granularity": "filter"}, "or a finer granularity"),
    ],
)
def test_what_cannot_be_met_is_refused_before_the_first_step(settings, message):
    build, example = NETWORKS["lenet"]
    model = seeded(build)
    cs = ContinuousSparsification(model, steps=3, select="all", **settings)
    before = copy.deepcopy(model.state_dict())
    model(example)
    for _ in range(2):  # and again if it is asked again
        with pytest.raises(SettingError, match=message):
            cs.penalty()
    with pytest.raises(SettingError, match=message):
        cs.harden()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_layers_without_multiply_adds_are_named():
    zoo = ZOO["gru"]
    model = seeded(zoo.build)
    cs = ContinuousSparsification(model, steps=3, select="all", target_macs=0.1)
    model(zoo.input())
    with pytest.raises(SettingError, match=r"says nothing about rnn\.weight_ih_l0, rnn\.weight_hh"):
        cs.penalty()


def test_costs_are_known_after_the_first_forward_pass_and_kept_in_the_state():
    build, example = NETWORKS["lenet"]
    cs, _ = search(build, example, target_macs=0.1)
    fresh = ContinuousSparsification(seeded(build), steps=3, select="all", target_macs=0.1)
    with pytest.raises(AttachError, match="first forward pass"):
        fresh.step()
    fresh.load_state_dict(cs.state_dict())
    fresh.model.load_state_dict(cs.model.state_dict())
    assert fresh.harden() == cs.harden()


@pytest.mark.parametrize("value", [0.0, 1.5, float("nan")])
def test_bad_targets(value):
    for method in ("cs", "mp"):
        with pytest.raises(SettingError, match=f"target_macs={value}: the fraction of multiply"):
            prunus.METHODS[method](nn.Linear(4, 4), steps=3, select="all", target_macs=value)


def test_a_target_for_each_round():
    build, example = NETWORKS["lenet"]
    cs, model = search(build, example, target_macs=[0.5, 0.2])
    masks = [cs.end_round()]
    for number in range(3):
        noise(cs, number)
        cs.step()
    masks.append(cs.end_round())
    found = [macs_kept(model, example, mask) for mask in masks]
    assert found == pytest.approx([0.5, 0.2], abs=0.001)
    assert not (masks[1] - masks[0]).kept
    with pytest.raises(SettingError, match="give as many of one as of the other"):
        search(build, example, target_macs=[0.5, 0.2], target_density=0.1)
