"""Iterative Magnitude Pruning, computed by hand on a handful of weights."""

import pytest
import torch
from torch import nn

import prunus
from models import ConvNet, images, seeded
from prunus import IterativeMagnitudePruning
from prunus.methods.ranking import keep_highest

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
            optimizer.zero_grad()
            (model(x).square().mean() + imp.penalty()).backward()
            optimizer.step()
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
            "freeze_weights": False,
    }  # fmt: skip
