"""Iterative Magnitude Pruning, computed by hand on a handful of weights."""

import pytest
import torch
from torch import nn

import prunus
from prunus import IterativeMagnitudePruning
from prunus.methods.common.ranking import keep_highest
from support.models import ConvNet, images, seeded

FIRST = [[0.1, -0.9], [0.3, 0.5]]
SECOND = [[-0.2, 0.8]]


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 1)
        with torch.no_grad():
            self.a.weight.copy_(torch.tensor(FIRST))
            self.b.weight.copy_(torch.tensor(SECOND))

    def forward(self, x):
        return self.b(self.a(x))


def weights(model):
    return {n: t.detach() for n, t in prunus.gates.plain_tensors(model).items()}


def kept(mask):
    return mask["a.weight"].int().tolist(), mask["b.weight"].int().tolist()


def test_rounds_by_hand():
    model = Two()
    imp = IterativeMagnitudePruning(model, steps=2, rate=1 / 3, select="all")
    assert kept(imp.mask()) == ([[1, 1], [1, 1]], [[1, 1]])
    # 6 -> 4: 0.1 of the first layer and -0.2 of the second are the smallest of all
    mask = imp.end_round()
    assert kept(mask) == ([[0, 1], [1, 1]], [[0, 1]])
    assert imp.mask() == mask
    # 4 -> 3: a third of four is one; the smallest now is 0.3
    assert kept(imp.end_round()) == ([[0, 1], [0, 1]], [[0, 1]])
    # 3 -> 2
    assert kept(imp.end_round()) == ([[0, 1], [0, 0]], [[0, 1]])
    assert imp.round == 4


@pytest.mark.parametrize("rate", [0.5, {"linear": 0.5}, [0.5, 0.5]])
def test_layers_that_are_ranked_apart(rate):
    imp = IterativeMagnitudePruning(Two(), steps=2, rate=rate, scope="layer", select="all")
    # 0.1 and 0.3 of the first layer, -0.2 of the second; in one ranking 0.1, -0.2 and 0.3 too
    assert kept(imp.end_round()) == ([[0, 1], [0, 1]], [[0, 1]])
    # 0.5 of the first layer, where one ranking would remove two of the three; half of one is none
    assert kept(imp.end_round()) == ([[0, 1], [0, 0]], [[0, 1]])


def test_removed_weights_never_come_back_however_large():
    model = Two()
    imp = IterativeMagnitudePruning(model, steps=2, rate=1 / 3, select="all", rewind=False)
    imp.end_round()
    with torch.no_grad():
        weights(model)["a.weight"][0, 0] = 100.0
    mask = imp.end_round()
    assert kept(mask) == ([[0, 1], [0, 1]], [[0, 1]])
    assert model.a.weight[0, 0] == 0


def test_the_ranking_is_of_the_trained_weights_and_then_they_rewind():
    model = Two()
    imp = IterativeMagnitudePruning(model, steps=1, rate=0.5, select="all")
    with torch.no_grad():
        weights(model)["a.weight"].copy_(torch.tensor([[9.0, 0.1], [8.0, 0.2]]))
        model.b.bias.fill_(7.0)
    bias = Two().b.bias
    imp.step()
    mask = imp.end_round()
    assert kept(mask) == ([[1, 0], [1, 0]], [[0, 1]])
    torch.testing.assert_close(model.a.weight, torch.tensor([[0.1, 0.0], [0.3, 0.0]]))
    assert model.b.bias.item() != 7.0
    assert bias.shape == model.b.bias.shape
    assert torch.equal(imp.ticket().weights["a.weight"], torch.tensor([[0.1, 0.0], [0.3, 0.0]]))


def test_the_continued_form_keeps_the_trained_weights():
    model = Two()
    imp = IterativeMagnitudePruning(model, steps=1, rate=0.5, select="all", rewind=False)
    with torch.no_grad():
        weights(model)["a.weight"].mul_(2)
    imp.end_round()
    torch.testing.assert_close(model.a.weight, torch.tensor([[0.0, -1.8], [0.6, 1.0]])
                               * torch.tensor([[1.0, 1.0], [0.0, 1.0]]))  # fmt: skip
    # The ticket still starts from w^(k).
    assert imp.ticket().weights["a.weight"].tolist()[0][1] == pytest.approx(-0.9)


@pytest.mark.parametrize("count", range(5))
def test_ties_are_cut_to_the_exact_count(count):
    ranks = {"a": torch.ones(2, 1), "b": torch.ones(3)}
    mask = {"a": torch.tensor([[True], [False]]), "b": torch.ones(3, dtype=torch.bool)}
    first, second = keep_highest(ranks, mask, count), keep_highest(ranks, mask, count)
    assert sum(int(m.sum()) for m in first.values()) == count
    assert not first["a"][1, 0]
    assert all(torch.equal(first[n], second[n]) for n in ranks)


def test_zero_weights_outrank_removed_ones():
    ranks = {"a": torch.tensor([0.0, 5.0, 0.0])}
    result = keep_highest(ranks, {"a": torch.tensor([True, False, True])}, 2)
    assert result["a"].tolist() == [True, False, True]


def test_training_rounds_reach_the_density_of_the_rate():
    model, x = seeded(ConvNet), images(4, 2, 5, 5)()
    imp = IterativeMagnitudePruning(model, steps=3, rate=0.2, rewind_step=1)
    total = imp.mask().total
    counts = []
    for _ in range(3):
        optimizer = torch.optim.SGD(imp.param_groups(0.1, weight_decay=0.1), momentum=0.9)
        for _ in range(3):
            (model(x).square().mean() + imp.penalty()).backward()
            optimizer.step()
            optimizer.zero_grad()
            imp.step()
        counts.append(imp.end_round().kept)
    expected = [total - round(0.2 * total)]
    for _ in range(2):
        expected.append(expected[-1] - round(0.2 * expected[-1]))
    assert counts == expected


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_bad_rates(rate):
    with pytest.raises(prunus.SettingError, match=f"rate={rate}"):
        IterativeMagnitudePruning(Two(), steps=1, rate=rate, select="all")


def test_settings_in_the_ticket():
    imp = IterativeMagnitudePruning(Two(), steps=1, rate=0.25, select="all")
    manifest = imp.ticket().manifest
    assert manifest.method == "imp"
    assert manifest.settings == {
        "steps": 1, "select": "all", "rate": 0.25, "rewind_step": 0, "rewind": True, "round": 1,
            "freeze_weights": False, "scope": "global", "exclude": None,
    }  # fmt: skip


# Rates by kind of layer, and by round


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, (1, 2), bias=False)
        self.first = nn.Linear(2, 2, bias=False)
        self.last = nn.Linear(2, 1, bias=False)
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor([0.4, -0.1, 0.2, 0.3]).view(2, 1, 1, 2))
            self.first.weight.copy_(torch.tensor([[9.0, -5.0], [7.0, 1.0]]))
            self.last.weight.copy_(torch.tensor([[2.0, -8.0]]))


def flat(mask):
    return {name: m.flatten().int().tolist() for name, m in mask.items()}


def test_rates_by_kind_rank_within_the_kind():
    rate = {"conv": 0.25, "linear": 0.5}
    imp = IterativeMagnitudePruning(Mixed(), steps=1, rate=rate, select="all")
    # 1 of 4 in the convolution (0.1), 3 of 6 in both dense layers together (1, 2 and 5)
    expected = {"conv.weight": [1, 0, 1, 1], "first.weight": [1, 0, 1, 0], "last.weight": [0, 1]}
    assert flat(imp.end_round()) == expected
    # 0.75 of 3 is 1 to remove, 1.5 of 3 is 2 (to even)
    expected = {"conv.weight": [1, 0, 0, 1], "first.weight": [1, 0, 0, 0], "last.weight": [0, 0]}
    assert flat(imp.end_round()) == expected
    assert list(imp.mask()) == ["conv.weight", "first.weight", "last.weight"]
    assert imp.ticket().manifest.settings["rate"] == rate


def test_a_rate_of_zero_spares_a_kind():
    rate = {"linear": 0.5, "conv": 0}
    imp = IterativeMagnitudePruning(Mixed(), steps=1, rate=rate, select="all")
    assert flat(imp.end_round())["conv.weight"] == [1, 1, 1, 1]


@pytest.mark.parametrize("sequence", [list, tuple])
def test_a_rate_for_each_round(sequence):
    rate = sequence([0.5, 0.0, 0.2])
    imp = IterativeMagnitudePruning(Mixed(), steps=1, rate=rate, select="all")
    assert [imp.end_round().kept for _ in range(3)] == [5, 5, 4]
    assert imp.ticket().manifest.settings["rate"] == [0.5, 0.0, 0.2]


def test_a_round_without_a_rate_does_not_start():
    imp = IterativeMagnitudePruning(Mixed(), steps=1, rate=[0.5, 0.2], select="all", rewind=False)
    imp.check_rounds(2)
    with pytest.raises(prunus.SettingError, match=r"round 3 has no rate: .*0\.2\] is for 2 rounds"):
        imp.check_rounds(3)
    for _ in range(2):
        imp.step()
        last = imp.end_round()
    assert imp.ticket().mask == last
    for start in (imp.step, imp.end_round):
        with pytest.raises(prunus.SettingError, match="round 3 has no rate"):
            start()
        assert (imp.round, imp.t, imp.mask()) == (3, 0, last)
    assert imp.harden() == last
    imp.step()


def test_committing_twice_in_a_round_cuts_once():
    imp = IterativeMagnitudePruning(Mixed(), steps=2, rate=0.5, select="all")
    imp.step()
    first = imp.commit()
    imp.step()
    assert first.kept == 5 and imp.mask().kept == 10
    assert imp.end_round() == first


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ([], r"rate=\[\] is empty"),
        ({}, r"rate=\{\} is empty"),
        ([0.1, 1.0], r"rate=\[0.1, 1.0\]: 1.0 is not a fraction"),
        ([0.1, float("nan")], "nan is not a fraction"),
        ({"conv": -0.1, "linear": 0.1}, "-0.1 is not a fraction"),
        ("0.2", "'0' is not a fraction"),
        ({"conv": 0.1}, "has no 'linear', but weights of that kind are selected"),
        ({"conv": 0.1, "linear": 0.1, "dense": 0.1}, "rate has 'dense', but no .*conv, linear"),
    ],
)
def test_bad_rates_attach_nothing(rate, message):
    model = Mixed()
    with pytest.raises(prunus.SettingError, match=message):
        IterativeMagnitudePruning(model, steps=1, rate=rate, select="all")
    assert not prunus.gates.gated_parameters(model)


def test_imp_c_is_imp_without_rewinding():
    one, two = Mixed(), Mixed()
    imp = IterativeMagnitudePruning(one, steps=1, rate=0.5, select="all", rewind=False)
    imp_c = prunus.ContinuedMagnitudePruning(two, steps=1, rate=0.5, select="all")
    for method in (imp, imp_c):
        with torch.no_grad():
            weights(method.model)["conv.weight"].mul_(30)
        method.step()
        method.end_round()
    assert imp.mask() == imp_c.mask()
    assert torch.equal(two.conv.weight, one.conv.weight)
    assert two.conv.weight.flatten()[0].item() == pytest.approx(12.0)
    assert imp_c.settings == imp.settings
    assert imp_c.ticket().manifest.method == "imp-c"
    assert imp_c.ticket().weights["conv.weight"].flatten()[0].item() == pytest.approx(0.4)
