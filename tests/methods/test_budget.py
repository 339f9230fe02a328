"""CS with a budget: the requested density, by hand and as a property, and what is refused."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import prunus
from prunus import ContinuousSparsification, PrunusWarning, SettingError
from prunus.methods.common.budget import cut_scores, shift_scores
from prunus.methods.common.competition import Budget
from prunus.tasks.networks import build_network
from support.models import ConvNet, images, seeded


def attached(rows, **settings):
    """CS on a network whose layers have the given scores."""
    layers = [nn.Linear(len(row), 1, bias=False) for row in rows]
    cs = ContinuousSparsification(nn.Sequential(*layers), steps=10, select="all", **settings)
    with torch.no_grad():
        for gate, row in zip(cs.gates.values(), rows, strict=True):
            gate.score.copy_(torch.tensor([row]))
    return cs, list(cs.gates.values())


def values(gates):
    return [gate.score.detach().flatten().tolist() for gate in gates]


def test_shift_by_hand():
    _, gates = attached([[0.5, -0.25, 1.0], [0.0, 2.0]])
    # two of five: 2.0 and 1.0 stay above zero, and 0.5 is the first below
    shift_scores(gates, Budget(0.4))
    assert values(gates) == [[0.0, -0.75, 0.5], [-0.5, 1.5]]
    shift_scores(gates, Budget(0.8))
    assert values(gates) == [[0.75, 0.0, 1.25], [0.25, 2.25]]
    shift_scores(gates, Budget(1.0))
    assert all(score > 0 for row in values(gates) for score in row)


def test_equal_scores_are_cut_to_the_exact_number():
    _, gates = attached([[0.3, 0.3, 0.3, -1.0], [0.3, 2.0]])
    shift_scores(gates, Budget(0.5))
    assert sum(score > 0 for row in values(gates) for score in row) == 1  # equal ones stay together
    cut_scores(gates, Budget(0.5))
    kept = [[score > 0 for score in row] for row in values(gates)]
    assert kept == [[True, True, False, False], [False, True]]


def test_the_density_falls_as_the_schedule_says():
    torch.manual_seed(0)
    model = nn.Linear(100, 10, bias=False)
    cs = ContinuousSparsification(model, steps=10, target_density=0.2, select="all")
    densities = []
    for _ in range(10):
        with torch.no_grad():
            cs.gates["weight"].score.add_(torch.randn(10, 100))
        cs.step()
        densities.append(cs.mask().density)
    # 0.2 + 0.8 * (1 - t / 8)^3 until t = 8
    expected = [0.2 + 0.8 * max(0.0, 1 - t / 8) ** 3 for t in range(1, 11)]
    assert densities == pytest.approx(expected, abs=0.0005)


def test_gradients_do_not_depend_on_the_shift():
    # What momentum has gathered stays valid, because only differences of scores are learned.
    cs, gates = attached([[0.5, -0.25, 1.0]], target_density=1 / 3, scores="optimiser")
    optimizer = torch.optim.SGD(cs.param_groups(0.1, score_lr=1.0, momentum=0.9))
    before = gates[0].score.detach().clone()
    cs.model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    moved = gates[0].score.detach() - before
    cs.step()
    after = gates[0].score.detach() - before
    assert torch.allclose(after - after[0, 0], moved - moved[0, 0], atol=1e-6)


x = images(4, 2, 5, 5)()


def search(target, steps=12, granularity="weight", rounds=1):
    model = seeded(ConvNet)
    cs = ContinuousSparsification(
        model, steps=steps, target_density=target, select="all", granularity=granularity
    )
    masks = []
    for _ in range(rounds):
        optimizer = torch.optim.SGD(cs.param_groups(0.1), momentum=0.9)
        for _ in range(steps):
            (model(x).square().mean() + cs.penalty()).backward()
            optimizer.step()
            optimizer.zero_grad()
            cs.step()
        masks.append(cs.end_round())
    return cs, masks


@given(st.floats(0.005, 1.0))
def test_ends_at_the_target(target):
    cs, [mask] = search(target, steps=3)
    assert mask.kept == round(target * mask.total)
    assert cs.ticket().mask == mask


def test_later_rounds_stay_there():
    cs, masks = search(0.25, rounds=3)
    assert [mask.kept for mask in masks] == 3 * [round(0.25 * masks[0].total)]
    assert cs.round == 4


def test_rounds_without_a_target_of_their_own_are_announced():
    model = nn.Linear(100, 10, bias=False)
    cs = ContinuousSparsification(model, steps=10, target_density=0.125, select="all")
    cs.check_rounds(1)
    with pytest.warns(PrunusWarning, match=r"after round 1 hardly .*such as \[0.5, 0.25, 0.125\]"):
        cs.check_rounds(3)


def test_rounds_without_a_target_keep_the_mask():
    _, masks = search(0.25, rounds=3)
    assert masks[0] == masks[1] == masks[2]
    _, masks = search([0.63, 0.4, 0.25], rounds=3)
    assert masks[0].jaccard(masks[1]) < 0.7 and masks[1].jaccard(masks[2]) < 0.7


def test_each_round_has_its_target():
    _, masks = search([0.5, 0.2, 0.1], rounds=4)
    total = masks[0].total
    assert [m.kept for m in masks] == [round(d * total) for d in (0.5, 0.2, 0.1, 0.1)]
    assert all(not (b - a).kept for a, b in itertools.pairwise(masks))  # nothing comes back


def test_the_density_falls_from_one_target_to_the_next():
    torch.manual_seed(0)
    model = nn.Linear(100, 10, bias=False)
    cs = ContinuousSparsification(model, steps=10, target_density=[0.5, 0.2], select="all")
    densities = []
    for number in range(20):
        with torch.no_grad():
            cs.gates["weight"].score.add_(torch.randn(10, 100))
        cs.step()
        densities.append(cs.mask().density)
        if number == 9:
            cs.end_round()
    expected = [0.2 + 0.3 * max(0.0, 1 - t / 8) ** 3 for t in range(1, 11)]
    assert densities[10:] == pytest.approx(expected, abs=0.0005)


def test_a_round_cut_short_ends_at_the_target_too():
    model = seeded(ConvNet)
    cs = ContinuousSparsification(model, steps=100, target_density=0.1, select="all")
    with torch.no_grad():
        for gate in cs.gates.values():
            gate.score.normal_()
    cs.step()
    assert cs.mask().density > 0.5
    mask = cs.harden()
    assert mask.kept == round(0.1 * mask.total)
    with prunus.hard(model):
        assert torch.isfinite(model(x)).all()


def test_filters_of_unequal_size_come_as_near_as_they_can():
    model = nn.Sequential(nn.Linear(2, 600), nn.Linear(600, 900), nn.Linear(900, 3))
    cs = ContinuousSparsification(
        model, steps=4, target_density=0.3, select="all", granularity="filter"
    )
    torch.manual_seed(0)
    with torch.no_grad():
        for gate in cs.gates.values():
            gate.score.add_(torch.randn(gate.score.shape))
    mask = cs.commit()
    assert abs(mask.density - 0.3) <= 0.001
    rows = mask["1.weight"].sum(dim=1)
    assert set(rows.tolist()) == {0, 600}


@pytest.mark.parametrize("target", [0.5, 0.05, 0.01])
def test_filters_of_resnet_20(target):
    model = build_network("resnet20", num_classes=10, image_size=32, channels=3)
    cs = ContinuousSparsification(model, steps=4, target_density=target, granularity="filter")
    torch.manual_seed(0)
    with torch.no_grad():
        for gate in cs.gates.values():
            gate.score.add_(torch.randn(gate.score.shape))
    mask = cs.commit()
    assert mask.kept == pytest.approx(target * mask.total, abs=64 * 9 / 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_density": 0.0}, "target_density=0.0: the fraction of weights to keep"),
        ({"target_density": 1.5}, "target_density=1.5"),
        ({"target_density": "10%"}, "target_density=10%: the fraction of weights to keep"),
        ({"target_density": float("nan")}, "target_density=nan"),
        ({"target_density": 1e-6}, "is less than one weight: choose at least"),
        ({"target_density": []}, "an empty list"),
        ({"target_density": [0.1, 0.2]}, "cannot keep more than the one before"),
        ({"target_density": 0.1, "mask_init": -0.1}, "give one of them"),
        (
            {"target_density": 0.1, "granularity": "filter"},
            "is 34 of 336 weights, but one gate stands for up to 54: choose at least 0.1608, or",
        ),
    ],
)
def test_impossible_settings_are_refused_before_anything_changes(settings, message):
    model = seeded(ConvNet)
    names = list(dict(model.named_parameters()))
    with pytest.raises(SettingError, match=message):
        ContinuousSparsification(model, steps=5, select="all", **settings)
    assert list(dict(model.named_parameters())) == names


def test_a_state_from_the_middle_of_a_round_resumes_identically():
    torch.manual_seed(1)
    noise = [torch.randn(10, 100) for _ in range(8)]

    def make():
        torch.manual_seed(0)
        model = nn.Linear(100, 10, bias=False)
        return ContinuousSparsification(model, steps=8, target_density=0.2, select="all")

    def advance(cs, parts):
        for part in parts:
            with torch.no_grad():
                cs.gates["weight"].score.add_(part)
            cs.step()

    whole, first, second = make(), make(), make()
    advance(whole, noise)
    advance(first, noise[:3])
    second.load_state_dict(first.state_dict())
    second.model.load_state_dict(first.model.state_dict())
    advance(second, noise[3:])
    assert whole.commit() == second.commit()
