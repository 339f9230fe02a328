"""One-shot, gradual and random pruning: what they keep, by hand and as properties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import prunus
from prunus import GradualMagnitudePruning, MagnitudePruning, RandomPruning
from prunus.methods.common.ranking import keep_density, remove_lowest
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(4, 1, bias=False)
        with torch.no_grad():
            self.a.weight.copy_(torch.tensor([[0.1, -0.9], [0.3, 0.5]]))
            self.b.weight.copy_(torch.tensor([[-0.2, 0.8, 0.7, 0.6]]))


def kept(mask):
    return mask["a.weight"].flatten().int().tolist(), mask["b.weight"].flatten().int().tolist()


def original(method, name):
    return prunus.gates.plain_tensors(method.model)[name]


def train(method, steps, weight_decay=0.0):
    optimizer = torch.optim.SGD(method.param_groups(0.1, weight_decay=weight_decay), momentum=0.9)
    for _ in range(steps):
        (method.model(x).square().mean() + method.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        method.step()


# One shot


def test_mp_by_hand():
    mp = MagnitudePruning(Two(), steps=2, target_density=0.5, select="all")
    mp.step()
    assert mp.mask().density == 1
    with torch.no_grad():
        original(mp, "a.weight")[0, 0] = 5.0  # the trained weights count
    mp.step()
    # 4 of 8: 5.0, -0.9, 0.8, 0.7
    assert kept(mp.commit()) == ([1, 1, 0, 0], [0, 1, 1, 0])
    assert kept(mp.end_round()) == ([1, 1, 0, 0], [0, 1, 1, 0])
    with torch.no_grad():
        original(mp, "b.weight").fill_(9.0)
    mp.step()
    assert kept(mp.end_round()) == ([1, 1, 0, 0], [0, 1, 1, 0]), "further rounds keep the mask"


def test_mp_of_everything():
    mp = MagnitudePruning(Two(), steps=1, target_density=1.0, select="all")
    assert mp.end_round().density == 1


@pytest.mark.parametrize("name", ["mp", "gmp", "random", "netslim", "dnw", "amc", "cs"])
def test_a_target_that_comes_to_no_weight_is_refused(name):
    settings = {"min_keep": 0.0} if name == "amc" else {}
    with pytest.raises(prunus.SettingError, match="of 8 weights is less than one weight"):
        prunus.METHODS[name](Two(), steps=1, target_density=0.01, select="all", **settings)


def test_a_layer_may_vanish():
    mp = MagnitudePruning(Two(), steps=1, target_density=0.125, select="all")
    mp.step()
    assert kept(mp.end_round()) == ([0, 1, 0, 0], [0, 0, 0, 0])
    mp.ticket()


# Gradual


def test_gmp_by_hand():
    gmp = GradualMagnitudePruning(
        Two(), steps=8, target_density=0.25, start=0.25, end=0.75, every=2, select="all"
    )
    assert (gmp.first_step, gmp.last_step) == (2, 6)
    counts = []
    for _ in range(8):
        gmp.step()
        counts.append(gmp.mask().kept)
    # half-way, d = 0.25 + 0.75 / 8 = 0.34375, and 2.75 of 8 weights are 3
    assert counts == [8, 8, 8, 3, 3, 2, 2, 2]
    assert kept(gmp.end_round()) == ([0, 1, 0, 0], [0, 1, 0, 0])


def test_gmp_keeps_every_layer_alike_if_asked():
    gmp = GradualMagnitudePruning(
        Two(), steps=4, target_density=0.5, end=0.5, scope="layer", select="all"
    )
    for _ in range(2):
        gmp.step()
    assert kept(gmp.mask()) == ([0, 1, 0, 1], [0, 1, 1, 0])


def test_the_last_cut_comes_at_the_end_whatever_every_is():
    gmp = GradualMagnitudePruning(Two(), steps=8, target_density=0.25, every=4, select="all")
    counts = []
    for _ in range(8):
        gmp.step()
        counts.append(gmp.mask().kept)
    # (1 - 4/6)^3 * 0.75 + 0.25 = 0.2778 of 8 is 2
    assert counts == [8, 8, 8, 2, 2, 2, 2, 2]
    far = GradualMagnitudePruning(Two(), steps=8, target_density=0.25, every=100, select="all")
    for _ in range(6):
        assert far.mask().density == 1
        far.step()
    assert far.mask().density == 0.25


def test_a_removed_weight_comes_back_only_before_the_end():
    gmp = GradualMagnitudePruning(
        Two(), steps=4, target_density=0.5, end=0.5, every=1, select="all"
    )
    gmp.step()
    # after one of two steps d = 0.5 + 0.5 / 8 and 4.5 weights are 4: -0.9, 0.8, 0.7, 0.6
    assert kept(gmp.mask()) == ([0, 1, 0, 0], [0, 1, 1, 1])
    with torch.no_grad():
        original(gmp, "b.weight")[0, 3] = 0.4  # a kept one shrinks below the removed 0.5
    gmp.step()
    assert kept(gmp.mask()) == ([0, 1, 0, 1], [0, 1, 1, 0])
    with torch.no_grad():
        original(gmp, "b.weight").fill_(9.0)
    gmp.step()
    final = ([0, 1, 0, 1], [0, 1, 1, 0])
    assert kept(gmp.mask()) == final and kept(gmp.end_round()) == final
    for _ in range(4):
        gmp.step()
    assert kept(gmp.end_round()) == final


def test_a_round_cut_short_reaches_the_target():
    gmp = GradualMagnitudePruning(Two(), steps=100, target_density=0.25, select="all")
    gmp.step()
    assert gmp.mask().density > 0.25 and not gmp.finished
    assert gmp.end_round().density == 0.25 and gmp.finished
    gmp.step()
    assert gmp.mask().density == 0.25


def test_every_is_a_hundredth_of_the_way():
    gmp = GradualMagnitudePruning(seeded(ConvNet), steps=400, target_density=0.1)
    cuts, before = 0, 1.0
    for _ in range(400):
        gmp.step()
        cuts += gmp.mask().density != before
        before = gmp.mask().density
    assert 60 <= cuts <= 100, "some near the end move less than one weight"
    assert before == pytest.approx(0.1, abs=0.5 / gmp.mask().total)


# Random


def test_random_masks_follow_from_the_seed_alone():
    def mask(seed, model_seed=0, **settings):
        settings = {"target_density": 0.3, "seed": seed, "select": "all", **settings}
        return RandomPruning(seeded(ConvNet, model_seed), steps=1, **settings).mask()

    assert mask(0) == mask(0, model_seed=1)
    assert mask(0) != mask(1)
    for layer in mask(0).layers:
        assert layer.kept == round(0.3 * layer.total)
    whole = [mask(seed, scope="global") for seed in range(5)]
    assert {m.kept for m in whole} == {round(0.3 * whole[0].total)}
    # A single mask has the density of the target in every layer with probability 0.024.
    assert len({m.layers[0].kept for m in whole}) > 1
    expected = mask(0).shuffled(0)
    assert mask(0) == expected, "the control of a found mask is drawn in the same way"


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_every_weight_is_equally_likely(scope):
    total = torch.zeros(2, 2)
    for seed in range(400):
        model = Two()
        random = RandomPruning(
            model, steps=1, target_density=0.5, scope=scope, seed=seed, select="all"
        )
        total += random.mask()["a.weight"]
    # a binomial's deviation is 10; five of them
    assert (total - 200).abs().max() < 50


def test_the_random_mask_never_changes_and_training_leaves_it():
    random = RandomPruning(seeded(ConvNet), steps=3, target_density=0.5, rewind_step=1)
    before = random.mask()
    train(random, 3, weight_decay=0.1)
    assert random.end_round() == before
    train(random, 2)
    assert random.harden() == before
    ticket = random.ticket()
    assert ticket.mask == before and ticket.manifest.settings["seed"] == 0


@pytest.mark.parametrize("leave", ["ticket", "strip"])
@pytest.mark.filterwarnings("error::prunus.errors.SearchWarning")
def test_a_random_mask_needs_no_step(leave):
    random = RandomPruning(seeded(ConvNet), steps=1, target_density=0.5)
    getattr(random, leave)()


# Common


def make(name, model, density, **settings):
    return prunus.METHODS[name](model, steps=3, target_density=density, select="all", **settings)


@pytest.mark.parametrize("name", ["mp", "gmp", "random"])
@given(density=st.floats(0.01, 1))
def test_the_target_is_met_to_the_rounding_of_one_weight(name, density):
    settings = {} if name == "mp" else {"scope": "global"}
    method = make(name, seeded(ConvNet), density, **settings)
    for _ in range(3):
        method.step()
    mask = method.end_round()
    assert abs(mask.kept - density * mask.total) <= 0.5


@pytest.mark.parametrize("name", ["gmp", "random"])
@given(density=st.floats(0.01, 1))
def test_the_target_is_met_in_every_layer(name, density):
    method = make(name, seeded(ConvNet), density, scope="layer")
    for _ in range(3):
        method.step()
    for layer in method.end_round().layers:
        assert abs(layer.kept - density * layer.total) <= 0.5


@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    rate=st.floats(0, 1, exclude_max=True),
    seed=st.integers(0, 99),
)
def test_what_is_removed_is_lowest_and_never_comes_back(sizes, rate, seed):
    generator = torch.Generator().manual_seed(seed)
    ranks = {str(i): torch.randn(n, generator=generator) for i, n in enumerate(sizes)}
    mask = {n: torch.rand(r.shape, generator=generator) < 0.7 for n, r in ranks.items()}
    result = remove_lowest(ranks, mask, rate)
    before = sum(int(m.sum()) for m in mask.values())
    assert sum(int(m.sum()) for m in result.values()) == before - round(rate * before)
    assert not any(bool((result[n] & ~mask[n]).any()) for n in ranks)
    gone = torch.cat([ranks[n][mask[n] & ~result[n]] for n in ranks])
    left = torch.cat([ranks[n][result[n]] for n in ranks])
    assert not len(gone) or not len(left) or gone.max() <= left.min()


def test_density_of_what_is_available():
    ranks = {"a": torch.arange(4.0)}
    mask = {"a": torch.tensor([True, True, False, False])}
    assert keep_density(ranks, mask, 0.25)["a"].tolist() == [False, True, False, False]
    assert keep_density(ranks, mask, 0.75)["a"].tolist() == [True, True, False, False]


@pytest.mark.parametrize("name", ["mp", "gmp", "random"])
@pytest.mark.parametrize("density", [0.0, -0.1, 1.1, float("nan"), float("inf")])
def test_bad_targets(name, density):
    model = Two()
    with pytest.raises(prunus.SettingError, match=f"target_density={density}: .*at most 1"):
        make(name, model, density)
    assert not prunus.gates.gated_parameters(model)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gmp", {"start": 0.5, "end": 0.5}, "start=0.5 and end=0.5"),
        ("gmp", {"start": -0.1}, "start=-0.1"),
        ("gmp", {"end": 1.1}, "end=1.1"),
        ("gmp", {"every": 0}, "every=0"),
        ("gmp", {"scope": "layers"}, "scope='layers' is not"),
        ("random", {"scope": "network"}, "scope='network' is not"),
        ("random", {"seed": -1}, "seed=-1"),
    ],
)
def test_bad_settings(name, settings, message):
    with pytest.raises(prunus.SettingError, match=message):
        make(name, Two(), 0.5, **settings)


@pytest.mark.parametrize("name", ["mp", "gmp", "random"])
def test_a_state_with_other_settings_is_refused(name):
    one, two = make(name, Two(), 0.5), make(name, Two(), 0.25)
    with pytest.raises(prunus.SettingError, match=r"target_density=0\.5"):
        two.load_state_dict(one.state_dict())
