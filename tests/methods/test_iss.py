"""Iterative Stochastic Sparsification, on a handful of weights and as a whole."""

import math

import pytest
import torch
from torch import nn

import prunus
from prunus import IterativeStochasticSparsification, Mask
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()
INF = math.inf


def four(**settings):
    model = nn.Sequential(nn.Linear(4, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 2.0, -3.0, 4.0]]))
    return model, IterativeStochasticSparsification(model, steps=2, select="all", **settings)


def score(iss):
    [gate] = iss.gates.values()
    return gate.score


def set_scores(iss, *values):
    with torch.no_grad():
        score(iss).copy_(torch.tensor([values]))


def test_a_step_by_hand():
    model, iss = four(penalty=0.5, score_lr=2.0)
    assert score(iss).tolist() == [[1.0] * 4]
    p = 1 / (1 + math.exp(-1))
    assert iss.penalty().item() == pytest.approx(0.5 * 4 * p)
    optimizer = torch.optim.Adam(iss.param_groups(0.0))
    inputs = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    (model(inputs).sum() + iss.penalty()).backward()
    optimizer.step()
    optimizer.zero_grad()
    iss.step()
    # s - 2 * (dL/dm + 0.5) * sigmoid'(1), dL/dm = w * x
    expected = [1 - 2 * (d + 0.5) * p * (1 - p) for d in (1.0, 2.0, -3.0, 0.0)]
    torch.testing.assert_close(score(iss), torch.tensor([expected]))
    assert score(iss).grad is None
    before = score(iss).clone()
    iss.step()
    assert torch.equal(score(iss), before), "no gradient, no step"


def test_momentum_of_the_scores_by_hand_and_a_new_start_each_round():
    _, iss = four(score_lr=2.0, rewind=False)
    s = score(iss)
    for gradient, position in [(1.0, -1.0), (1.0, -4.8), (0.0, -8.22)]:
        # v <- 0.9 v + g is 1, 1.9, 1.71; s <- s - 2 v from s0 = 1
        s.grad = torch.full_like(s, gradient)
        iss.step()
        torch.testing.assert_close(s.detach(), torch.full((1, 4), position))
    set_scores(iss, 1.0, 2.0, 3.0, 0.0)
    iss.end_round()
    s.grad = torch.zeros_like(s)
    iss.step()
    assert s.tolist() == [[1.0, 2.0, 3.0, -INF]], "the momentum is that of this round alone"


def test_a_copy_has_the_momentum_too():
    model, iss = four()
    score(iss).grad = torch.ones(1, 4)
    iss.step()
    other_model, other = four()
    other_model.load_state_dict(model.state_dict())
    other.load_state_dict(iss.state_dict())
    for method in (iss, other):
        score(method).grad = torch.ones(1, 4)
        method.step()
    assert torch.equal(score(iss), score(other))
    assert score(iss)[0, 0].item() == pytest.approx(1 - 20 * (1 + 1.9))


def test_gradients_accumulate_until_the_step():
    results = []
    for batches in ([x], x.split(2)):
        model = seeded(ConvNet).eval()
        iss = IterativeStochasticSparsification(
            model, steps=2, score_lr=3.0, mask_init=30.0, penalty=0.0
        )
        for gate in iss.gates.values():
            gate.train()  # sigmoid(30) is 1 in float32: every sample is the whole network
            gate.score.data.fill_(12.0)  # not saturated, and a sample of 1 in all but 6e-6 cases
        torch.manual_seed(0)
        for batch in batches:
            (model(batch).square().sum() / 4).backward()
        iss.step()
        results.append([gate.score.detach().clone() for gate in iss.gates.values()])
    for whole, parts in zip(*results, strict=True):
        torch.testing.assert_close(whole, parts)


def test_scores_are_in_no_group_and_frozen_weights_leave_an_empty_one():
    model, iss = four()
    [group] = iss.param_groups(0.1, weight_decay=0.5)
    assert [p.numel() for p in group["params"]] == [4]
    assert all(p is not score(iss) for p in group["params"])
    model, iss = four(freeze_weights=True)
    optimizer = torch.optim.SGD(iss.param_groups(0.1, weight_decay=0.5), momentum=0.9)
    before = score(iss).clone()
    (model(torch.ones(1, 4)).sum() + iss.penalty()).backward()
    optimizer.step()
    iss.step()
    assert not torch.equal(score(iss), before)
    iss.remove()
    assert model[0].weight.tolist() == [[1.0, 2.0, -3.0, 4.0]]


def test_a_round_removes_what_fell_below_its_start_and_leaves_the_rest():
    model, iss = four(rewind_step=0)
    below = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)).item()
    set_scores(iss, 1.0, below, 3.5, -8.0)
    with torch.no_grad():
        prunus.gates.plain_tensors(model)["0.weight"].add_(5.0)
    iss.step()
    iss.end_round()
    assert score(iss).tolist() == [[1.0, -INF, 3.5, -INF]]
    assert prunus.gates.plain_tensors(model)["0.weight"].tolist() == [[1.0, 2.0, -3.0, 4.0]]
    assert (iss.round, iss.t) == (2, 0)
    iss.step()
    set_scores(iss, 0.9, -INF, 3.5, -INF)
    iss.end_round()
    assert score(iss).tolist() == [[-INF, -INF, 3.5, -INF]]


def test_removed_scores_stay_removed_through_training():
    model = seeded(ConvNet)
    iss = IterativeStochasticSparsification(
        model, steps=3, score_lr=5.0, penalty=1e-5, rewind=False
    )
    torch.manual_seed(0)
    removed = None
    for _ in range(3):
        optimizer = torch.optim.Adam(iss.param_groups(0.01))
        for _ in range(3):
            (model(x).square().mean() + iss.penalty()).backward()
            optimizer.step()
            optimizer.zero_grad()
            iss.step()
            for name, gate in iss.gates.items():
                assert not gate.score.isnan().any()
                if removed is not None:
                    assert (gate.score[removed[name]] == -INF).all()
        mask = iss.end_round()
        if removed is not None:
            assert not any((mask[name] & gone).any() for name, gone in removed.items())
        removed = {name: gate.score == -INF for name, gate in iss.gates.items()}
    assert all(gone.any() and not gone.all() for gone in removed.values())
    assert iss.penalty().isfinite()


def test_the_mask_of_a_round_is_a_sample_of_its_own_seed():
    def found(torch_seed, rounds=1, **settings):
        iss = IterativeStochasticSparsification(seeded(ConvNet), steps=1, **settings)
        torch.manual_seed(torch_seed)
        masks = []
        for _ in range(rounds):
            iss.step()
            masks.append(iss.end_round())
            assert iss.mask() == masks[-1], "until the next step"
        return masks

    assert found(1) == found(2), "whatever else is drawn"
    assert found(1, seed=1) != found(1)
    first, second = found(1, rounds=2)
    assert first != second
    # sigmoid(1) = 0.731 of 324 weights; four standard deviations are 0.099
    assert first.density == pytest.approx(0.731, abs=0.099)


def test_until_a_round_commits_the_mask_is_the_sign():
    _, iss = four()
    set_scores(iss, 1.0, -1.0, 2.0, 0.0)
    assert iss.mask()["0.weight"].tolist() == [[True, False, True, False]]
    assert iss.stats().soft_density == pytest.approx(
        sum(1 / (1 + math.exp(-s)) for s in (1, -1, 2, 0)) / 4
    )


def test_nothing_moves_after_harden():
    model, iss = four(score_lr=50.0)
    model(torch.ones(1, 4)).sum().backward()  # a gradient that was not used yet
    mask = iss.harden()
    before = score(iss).clone()
    optimizer = torch.optim.SGD(iss.param_groups(0.1), momentum=0.9)
    for _ in range(3):
        (model(torch.ones(1, 4)).sum() + iss.penalty()).backward()
        optimizer.step()
        iss.step()
    assert torch.equal(score(iss), before) and score(iss).grad is None
    assert iss.mask() == mask == Mask.of(model)
    assert not model[0].weight[~mask["0.weight"]].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mask_init": 31.0}, "mask_init=31.0"),
        ({"mask_init": math.nan}, "mask_init=nan"),
        ({"penalty": -1.0}, "penalty=-1.0"),
        ({"score_lr": 0.0}, "score_lr=0.0"),
        ({"score_lr": INF}, "score_lr=inf"),
        ({"score_momentum": 1.0}, "score_momentum=1.0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_bad_settings(settings, message):
    model = seeded(ConvNet)
    with pytest.raises(prunus.SettingError, match=message):
        IterativeStochasticSparsification(model, steps=1, **settings)
    assert not prunus.gates.gated_parameters(model)
