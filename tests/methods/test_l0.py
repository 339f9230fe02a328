"""l0 regularisation: its penalty, and the masks that it tries."""

import math

import pytest
import torch
from test_imp import Two, kept

import prunus
from prunus import L0Regularisation, Mask
from prunus.errors import SearchWarning
from prunus.gates.hard_concrete import BETA, GAMMA, ZETA
from prunus.methods.l0 import RATE_STEPS
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()
OPEN = 30.0
SHIFT = BETA * math.log(-GAMMA / ZETA)


def test_the_penalty_by_hand():
    l0 = L0Regularisation(Two(), steps=1, penalty=0.1, keep_init=0.75, select="all")
    p = 1 / (1 + math.exp(-(math.log(3) - SHIFT)))
    penalty = l0.penalty()
    assert penalty.item() == pytest.approx(0.1 * 6 * p)
    penalty.backward()
    gradient = l0.gates["b.weight"].log_alpha.grad
    torch.testing.assert_close(gradient, torch.full((1, 2), 0.1 * p * (1 - p)))
    assert l0.stats().soft_density == pytest.approx(p)


def test_the_expected_rule_by_hand():
    model = Two()
    l0 = L0Regularisation(model, steps=1, rule="expected", select="all")
    with torch.no_grad():
        l0.gates["a.weight"].log_alpha.copy_(torch.tensor([[OPEN, 0.0], [-2.4, -2.39]]))
        l0.gates["b.weight"].log_alpha.copy_(torch.tensor([[-OPEN, OPEN]]))
    mask = l0.harden()
    # sigmoid(log_alpha) * 1.2 - 0.1 > 0 from log_alpha = -log(11) = -2.3979 on
    assert kept(mask) == ([[1, 1], [0, 1]], [[0, 1]])
    small = 1.2 / (1 + math.exp(2.39)) - 0.1
    torch.testing.assert_close(model.a.weight, torch.tensor([[0.1, -0.45], [0.0, 0.5 * small]]))
    assert l0.gates["a.weight"].committed.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def judge(model, wanted, seen):
    """A score that is higher for masks that agree with `wanted`."""

    def evaluate():
        mask = Mask.of(model)
        seen.append((mask, model.conv1.weight.detach().clone()))
        return sum((mask[n] == wanted[n]).sum().item() for n in wanted)

    return evaluate


def test_the_best_of_the_samples_is_kept_with_its_values():
    model = seeded(ConvNet)
    l0 = L0Regularisation(model, steps=1, samples=7)
    wanted = {n: torch.rand(w.shape, generator=torch.Generator().manual_seed(1)) < 0.8
              for n, w in l0.mask().items()}  # fmt: skip
    seen = []
    evaluate = judge(model, wanted, seen)
    mask = l0.commit(evaluate)
    assert (
        len(seen) == 7 and len({tuple(m["conv1.weight"].flatten().tolist()) for m, _ in seen}) == 7
    )
    scores = [sum((m[n] == wanted[n]).sum().item() for n in wanted) for m, _ in seen]
    best, weight = seen[scores.index(max(scores))]
    assert mask == best == l0.mask()
    with l0.hard():
        assert torch.equal(model.conv1.weight, weight)
    assert torch.equal(l0.ticket("current").weights["conv1.weight"], weight)
    assert l0.commit(evaluate) == mask and len(seen) == 7, "a committed round is not tried again"
    assert l0.harden() == mask
    assert torch.equal(model.conv1.weight, weight), "the values are in the weights now"
    # P(z > 0) = 0.83 of 324 weights; four standard deviations are 0.083
    assert mask.density == pytest.approx(0.832, abs=0.083)


def test_samples_depend_on_the_seed_and_the_round_alone():
    def found(torch_seed, **settings):
        l0 = L0Regularisation(seeded(ConvNet), steps=1, samples=1, **settings)
        torch.manual_seed(torch_seed)
        masks = []
        for _ in range(2):
            l0.step()
            masks.append(l0.end_round())
        return masks

    assert found(1) == found(2)
    first, second = found(1)
    assert first != second and first != found(1, seed=1)[0]


def test_a_new_step_ends_the_commitment():
    model = seeded(ConvNet).eval()
    l0 = L0Regularisation(model, steps=4, samples=1)
    soft = model(x)
    l0.step()
    l0.commit()
    with l0.hard():
        assert not torch.allclose(model(x), soft)
    l0.step()
    with l0.hard():
        torch.testing.assert_close(model(x), soft)


def test_without_held_out_data_samples_cannot_be_compared():
    l0 = L0Regularisation(seeded(ConvNet), steps=1)
    with pytest.raises(prunus.SettingError, match="l0 compares masks"):
        l0.commit()
    assert L0Regularisation(seeded(ConvNet), steps=1, samples=1).commit().density < 1


def test_groups():
    l0 = L0Regularisation(Two(), steps=1000, select="all")
    weights, scores = l0.param_groups(0.1, weight_decay=0.5)
    assert (weights["lr"], weights["weight_decay"]) == (0.1, 0.5)
    assert (scores["lr"], scores["weight_decay"]) == (pytest.approx(0.1 * RATE_STEPS / 1000), 0.0)
    assert l0.param_groups(0.1, score_lr=3.0)[1]["lr"] == 3.0
    long = L0Regularisation(Two(), steps=10 * RATE_STEPS, select="all")
    assert long.param_groups(0.1)[1]["lr"] == 0.1


def test_a_larger_penalty_keeps_fewer():
    densities = []
    for penalty in (1e-5, 1e-3, 1e-1):
        model = seeded(ConvNet)
        l0 = L0Regularisation(model, steps=20, penalty=penalty, rule="expected")
        optimizer = torch.optim.SGD(l0.param_groups(0.01, score_lr=20.0), momentum=0.9)
        torch.manual_seed(0)
        for _ in range(20):
            (model(x).square().mean() + l0.penalty()).backward()
            optimizer.step()
            optimizer.zero_grad()
            l0.step()
        densities.append(l0.commit().density)
    assert densities[0] > densities[1] > densities[2]


def test_nothing_left_says_what_helps():
    l0 = L0Regularisation(seeded(ConvNet), steps=1, keep_init=1e-6, rule="expected")
    with pytest.warns(SearchWarning, match="larger keep_init"):
        l0.commit()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep_init": 0.0}, "keep_init=0.0"),
        ({"keep_init": 1.0}, "keep_init=1.0"),
        ({"penalty": -1e-3}, "penalty=-0.001"),
        ({"rule": "best"}, "rule='best'"),
        ({"samples": 0}, "samples=0"),
        ({"seed": 2**32}, "seed=4294967296"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(prunus.SettingError, match=message):
        L0Regularisation(Two(), steps=1, select="all", **settings)
