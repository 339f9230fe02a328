"""Sequential Continuous Sparsification on a handful of weights."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import prunus
from prunus import SequentialSparsification as SequentialCS
from prunus.errors import SearchWarning
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()


def one_layer(rate=0.4, **settings):
    torch.manual_seed(0)
    settings = {"steps": 2, "select": "all", "final_temperature": 4.0, **settings}
    return SequentialCS(nn.Linear(5, 1, bias=False), rate=rate, **settings)


def set_scores(method, values):
    with torch.no_grad():
        method.gates["weight"].score.copy_(torch.tensor([values]))


def scores(method):
    return method.gates["weight"].score.detach().flatten().tolist()


def kept(mask):
    return mask["weight"].flatten().int().tolist()


def test_rounds_by_hand():
    seq = one_layer()
    assert scores(seq) == [0.0] * 5 and kept(seq.mask()) == [1] * 5
    seq.step()
    seq.step()
    assert seq.temperature == 4
    set_scores(seq, [0.3, -0.5, -0.1, -0.2, 0.1])
    assert kept(seq.mask()) == [1] * 5, "the mask of the round before"
    # two of five are removed; -0.1 is kept although it is negative
    assert kept(seq.commit()) == [1, 0, 1, 0, 1]
    assert scores(seq) == pytest.approx([0.3, -0.5, -0.1, -0.2, 0.1]), "until the round ends"
    assert kept(seq.end_round()) == [1, 0, 1, 0, 1]
    # s <- min(4 s, 0), and minus infinity for what has left
    assert scores(seq) == pytest.approx([0.0, -torch.inf, -0.4, -torch.inf, 0.0])
    assert seq.temperature == 1
    seq.step()
    assert kept(seq.mask()) == [1, 0, 1, 0, 1]
    # 0.4 of three is one: the suppressed one, and not one that was removed before
    assert kept(seq.end_round()) == [1, 0, 0, 0, 1]
    with seq.hard():
        gated = seq.model.weight.flatten()
    # s0 = 0: kept weights count twice (mask_scale="init"), whatever their score
    original = seq.model.parametrizations.weight.original.detach().flatten()
    assert torch.equal(gated, original * 2 * torch.tensor([1.0, 0, 0, 0, 1.0]))


def test_hard_in_the_middle_of_a_round_keeps_negative_scores():
    seq = one_layer(mask_scale="none")
    seq.step()
    set_scores(seq, [-1.0] * 5)
    with seq.hard():
        assert torch.equal(seq.model.weight, seq.model.parametrizations.weight.original)
    assert seq.mask().density == 1


def test_gradients_of_removed_weights_are_exactly_zero():
    seq = one_layer(penalty=0.5, mask_scale="none")
    seq.step()
    set_scores(seq, [0.3, -0.5, -0.1, -0.2, 0.1])
    seq.end_round()
    gate, weight = seq.gates["weight"], seq.model.parametrizations.weight.original
    batch = torch.ones(1, 5)
    for penalty_first in (False, True):  # apart from the forward pass, and riding on it
        seq.model.zero_grad()
        penalty = seq.penalty() if penalty_first else 0
        output = seq.model(batch).sum()
        (output + (penalty if penalty_first else seq.penalty())).backward()
        m = torch.sigmoid(gate.score.detach())
        slope = m * (1 - m)
        assert torch.equal(weight.grad, m)
        assert weight.grad.flatten()[[1, 3]].tolist() == [0.0, 0.0]
        torch.testing.assert_close(gate.score.grad, slope * (weight.detach() + 0.5))
        assert gate.score.grad.flatten()[[1, 3]].tolist() == [0.0, 0.0]
    torch.testing.assert_close(seq.penalty(), 0.5 * m.sum())
    stats = seq.stats()
    assert stats.soft_density == pytest.approx(0.6), "the round's mask, between rounds"


OPTIMISERS = {
    "momentum": lambda g: torch.optim.SGD(g, momentum=0.9),
    "nesterov": lambda g: torch.optim.SGD(g, momentum=0.9, nesterov=True),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": lambda g: torch.optim.RMSprop(g, momentum=0.9),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_removed_weights_never_come_back(optimiser):
    model = seeded(ConvNet)
    seq = SequentialCS(model, steps=4, rate=0.3, penalty=1e-3, select="all")
    optimizer = OPTIMISERS[optimiser](seq.param_groups(0.05, score_lr=0.5, weight_decay=0.1))
    before = seq.mask()
    total = count = before.total
    for _ in range(5):
        for _ in range(4):  # the same optimiser throughout, momentum and all
            (model(x).square().mean() + seq.penalty()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
            optimizer.step()
            optimizer.zero_grad()
            seq.step()
            assert seq.mask() == before
            for name, gate in seq.gates.items():
                assert not gate.score.isnan().any()
                assert torch.equal(gate.score == -torch.inf, ~before[name])
                module = model.get_submodule(name.rpartition(".")[0])
                assert not module.weight[~before[name]].any()
        mask = seq.end_round()
        count -= round(0.3 * count)
        assert mask.kept == count and (mask - before).kept == 0
        before = mask
    assert 0 < count < total
    assert seq.harden() == before


def test_suppressed_scores_stay_finite_for_any_number_of_rounds():
    seq = one_layer(rate=0.01, final_temperature=200.0)
    for _ in range(40):  # 200^17 is more than a float can hold
        seq.step()
        seq.step()
        if seq.round == 1:
            set_scores(seq, [-0.1, 0.1, -0.2, 0.0, 0.2])
        assert seq.end_round().density == 1
        loss = seq.model(torch.ones(1, 5)).sum() + seq.penalty()
        loss.backward()
        assert all(bool(p.grad.isfinite().all()) for p in seq.model.parameters())
    assert all(bool(g.score.isfinite().all()) for g in seq.gates.values())


@given(
    values=st.lists(st.floats(-10, 10, width=32), min_size=5, max_size=5),
    rate=st.floats(0.01, 0.99),
    rounds=st.integers(1, 4),
)
def test_each_round_removes_the_fraction_with_the_lowest_scores(values, rate, rounds):
    seq = one_layer(rate=rate)
    left = 5
    for _ in range(rounds):
        seq.step()
        before = seq.mask()["weight"].flatten()
        found = torch.tensor(values).masked_fill(~before, -torch.inf)
        set_scores(seq, found.tolist())
        after = seq.end_round()["weight"].flatten()
        left -= round(rate * left)
        assert int(after.sum()) == left
        gone, remaining = found[before & ~after], found[after]
        assert not len(gone) or not len(remaining) or gone.max() <= remaining.min()


def test_transposed_convolutions_in_groups_and_channels_last():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ConvTranspose2d(4, 6, 3, groups=2))
    model = model.to(memory_format=torch.channels_last)
    seq = SequentialCS(model, steps=1, rate=0.25, select="all")
    for _ in range(2):
        with torch.no_grad():
            for gate in seq.gates.values():
                gate.score.copy_(
                    torch.where(gate.score > -torch.inf, torch.randn_like(gate.score), gate.score)
                )
        lowest = torch.cat([g.score[g.score > -torch.inf].flatten() for g in seq.gates.values()])
        seq.step()
        found = {n: g.score.detach().clone() for n, g in seq.gates.items()}
        mask = seq.end_round()
        threshold = lowest.sort().values[round(0.25 * len(lowest))]
        for name, gate in seq.gates.items():
            expected = (found[name] >= threshold).reshape(gate.layout.weight)
            assert torch.equal(mask[name], expected)


def test_a_supermask_of_fewer_rounds_warns_when_nothing_is_left():
    seq = one_layer(rate=0.9)
    seq.step()
    seq.end_round()
    seq.step()
    with pytest.warns(SearchWarning, match="removes every weight: the rounds have"):
        seq.end_round()


def test_a_copy_between_rounds_and_the_state_have_what_left():
    seq = one_layer()
    seq.step()
    set_scores(seq, [0.3, -0.5, -0.1, -0.2, 0.1])
    seq.end_round()
    twin = copy.deepcopy(seq)
    other = one_layer()
    other.model.load_state_dict(seq.model.state_dict())
    other.load_state_dict(seq.state_dict())
    for method in (twin, other):
        method.step()
        assert kept(method.mask()) == [1, 0, 1, 0, 1]


@pytest.mark.parametrize("rate", [0.0, 1.0, float("nan")])
def test_bad_rates(rate):
    model = nn.Linear(2, 2)
    with pytest.raises(prunus.SettingError, match=f"rate={rate}"):
        SequentialCS(model, steps=1, rate=rate, select="all")
    assert not prunus.gates.gated_parameters(model)
