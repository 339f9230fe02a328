"""AMC: its environment by hand, its budget, what its agent learns, and what it leaves alone."""

import contextlib
import math
import random
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.env_checker import check_env
from torch import nn

import prunus
from prunus.methods.amc import agent as amc_agent
from prunus.methods.amc.agent import attempt
from prunus.methods.amc.environment import AMCEnvironment
from support.models import ConvNet, images, seeded
from support.processes import found_by_two

x = images(4, 2, 5, 5)()


def linears(*sizes):
    """A chain of linear layers: `linears(2, 3, 4)` has 6 and 12 weights."""
    pairs = pairwise(sizes)
    return nn.Sequential(*[nn.Linear(a, b, bias=False) for a, b in pairs])


def environment(model, target_density, min_keep, reward=lambda _: 0.5):
    return AMCEnvironment(prunus.choose(model, "all"), target_density, min_keep, reward)


def walk(env, *actions):
    """The bounds before each action, and what the last step returned."""
    env.reset()
    bounds = []
    for action in actions:
        bounds.append(env.bounds())
        result = env.step(np.array([action], np.float32))
    return bounds, result


# The environment

THREE = (10, 10, 5, 4)  # 100, 50 and 20 weights, 170 in all


def test_actions_are_bounded_so_that_the_later_layers_can_meet_the_budget():
    env = environment(linears(*THREE), 0.5, 0.1)  # 85 weights; at least 10, 5 and 2
    assert (env.budget, env.fewest) == (85, [10, 5, 2])
    # All that one layer may take leaves the fewest of the others: 85 - 7 = 78, then 7 - 2 = 5.
    bounds, _ = walk(env, 1.0, 1.0, 1.0)
    assert bounds == [(15, 78), (5, 5), (2, 2)]
    assert env.counts == [78, 5, 2]
    # The least: if the others keep everything, 85 - 70 = 15 are still to be kept here.
    bounds, _ = walk(env, 0.1, 0.1, 0.1)
    assert bounds == [(15, 78), (50, 50), (20, 20)]
    assert env.counts == [15, 50, 20]
    # In between, the actions are what happens, and the last layer takes what is left.
    bounds, _ = walk(env, 0.5, 0.5, 0.3)
    assert bounds == [(15, 78), (15, 33), (10, 10)]
    assert env.counts == [50, 25, 10]


def test_observations_and_rewards_by_hand():
    rewarded = []
    env = environment(linears(*THREE), 0.5, 0.1, lambda counts: rewarded.append(counts) or 0.7)
    first, _ = env.reset()
    # index, kind (linear, the second of them), outputs, inputs, kernel, weights; share of all;
    # reduced so far, in the layers to come, last action
    expected = [0, 1, 1, 1, 1, 1, 100 / 170, 0, 70 / 170, 1]
    np.testing.assert_allclose(first, expected, rtol=1e-6)
    second, reward, done, _, _ = env.step(np.array([0.5], np.float32))
    assert (reward, done) == (0.0, False)
    expected = [0.5, 1, 0.5, 1, 1, 0.5, 50 / 170, 50 / 170, 20 / 170, 0.5]
    np.testing.assert_allclose(second, expected, rtol=1e-6)
    _, reward, done, _, _ = env.step(np.array([0.5], np.float32))
    assert (reward, done) == (0.0, False)
    last, reward, done, _, _ = env.step(np.array([1.0], np.float32))
    assert (reward, done) == (0.7, True)
    expected = [1, 1, 0.4, 0.5, 1, 0.2, 20 / 170, 85 / 170, 0, 0.5]  # the action as bounded
    np.testing.assert_allclose(last, expected, rtol=1e-6)
    walk(env, 0.5, 0.5, 0.9)
    assert rewarded == [(50, 25, 10)], "the same counts are asked for once"
    assert env.best == (50, 25, 10)


def test_kernels_and_kinds_are_seen():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose1d(8, 2, 5), nn.Embedding(4, 6))
    first = environment(model, 0.5, 0.0).reset()[0]
    np.testing.assert_allclose(first[:6], [0, 0, 1, 3 / 6, 1, 1], rtol=1e-6)


def test_the_environment_keeps_the_rules_of_gymnasium():
    env = environment(seeded(ConvNet), 0.3, 0.05)
    with pytest.warns(UserWarning, match="symmetric and normalized"):  # the agent scales actions
        check_env(env, skip_render_check=True)


@settings(max_examples=200)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=6),
    target=st.floats(0.01, 0.99),
    fraction=st.floats(0, 1),
    data=st.data(),
)
def test_every_episode_has_exactly_the_target_density(sizes, target, fraction, data):
    min_keep = fraction * target
    env = environment(linears(*sizes), target, min_keep)
    actions = data.draw(st.lists(st.floats(0, 1), min_size=len(sizes) - 1, max_size=len(sizes) - 1))
    bounds, _ = walk(env, *actions)
    assert sum(env.counts) == round(target * env.total)
    for count, size, (fewest, most) in zip(env.counts, env.sizes, bounds, strict=True):
        assert int(min_keep * size) <= fewest <= count <= most <= size


def test_a_score_that_is_no_number_is_an_error():
    env = environment(linears(2, 3), 0.5, 0.0, lambda _: math.nan)
    with pytest.raises(prunus.SettingError, match="evaluate returned nan"):
        walk(env, 0.5)


# The agent


def middle_matters(counts):
    """Only the second layer matters: how much of its 1200 weights is kept."""
    return counts[1] / 1200


def lesson(reward, *, model=None, seed=0, episodes=60, warmup=15):
    """The environment after an agent's attempts, and their rewards in order."""
    rewards = []

    def logged(counts):
        rewards.append(reward(counts))
        return rewards[-1]

    env = environment(model or linears(20, 30, 40, 10), 0.2, 0.01, logged)
    attempt(env, episodes=episodes, warmup=warmup, seed=seed)
    return env, rewards


def test_the_agent_finds_the_layer_that_matters():
    env, rewards = lesson(middle_matters)
    # The budget is 440 of 2200 weights: uniform keeps 0.2 of the layer, at most 0.358 is possible.
    assert env.rewards[env.best] > 0.35
    assert min(rewards[-3:]) > 0.25, "the policy itself has learned it"
    assert max(rewards) == env.rewards[env.best]


def test_learning_beats_luck():
    """Ten layers whose worth saturates: the later attempts are better than the random ones."""
    sizes = [10, 10, 10, 20, 20, 20, 40, 40, 40]
    worth = [3, 1, 2, 1, 1, 3, 1, 1]
    totals = [a * b for a, b in pairwise(sizes)]

    def reward(counts):
        parts = zip(worth, counts, totals, strict=True)
        return sum(w * (1 - math.exp(-8 * n / total)) for w, n, total in parts) / sum(worth)

    _, rewards = lesson(reward, model=linears(*sizes))
    warm, learned = rewards[:15], rewards[-15:]
    assert sum(learned) / len(learned) > sum(warm) / len(warm)
    assert max(rewards) > reward([0.2 * total for total in totals])


def test_the_seed_decides():
    one, two, other = (lesson(middle_matters, seed=s, episodes=12, warmup=4) for s in (3, 3, 4))
    assert one[0].rewards == two[0].rewards and one[1] == two[1]
    assert one[1] != other[1]


def generators():
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


def test_the_run_and_the_agent_do_not_touch_each_others_generators():
    def drawing(counts):
        random.random(), np.random.rand(3), torch.rand(7)
        return middle_matters(counts)

    model = linears(20, 30, 40, 10)
    before = generators()
    _, rewards = lesson(drawing, model=model, episodes=8, warmup=3)
    assert generators() == before
    torch.manual_seed(6)
    assert lesson(middle_matters, episodes=8, warmup=3)[1] == rewards


def test_generators_are_restored_after_an_error():
    def failing(_):
        raise RuntimeError("no accuracy today")

    model = linears(20, 30, 40, 10)
    before = generators()
    with pytest.raises(RuntimeError, match="today"):
        lesson(failing, model=model)
    assert generators() == before


@pytest.mark.parametrize("warmup", [0, 5])
def test_all_or_no_attempts_at_random(warmup):
    assert len(lesson(middle_matters, episodes=5, warmup=warmup)[1]) <= 5


def test_noise_starts_after_the_warm_up_and_fades():
    noise = amc_agent._Noise(warmup=2)
    np.random.seed(0)
    widths = []
    for _ in range(5):
        noise.reset()
        widths.append(np.std([noise() for _ in range(4000)]))
    assert widths[:2] == [0, 0]
    np.testing.assert_allclose(widths[2:], [1, 0.95, 0.95**2], rtol=0.05)


def test_nothing_is_printed_or_written(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SB3_LOGDIR", str(tmp_path / "logs"))
    lesson(middle_matters, episodes=8, warmup=3)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


# The method


def make(model, **changes):
    given = {"target_density": 0.5, "episodes": 6, "warmup": 3, "min_keep": 0.0, "select": "all"}
    return prunus.AMC(model, steps=1, **(given | changes))


def small():
    model = linears(2, 2, 1)
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.1, -0.9], [0.3, 0.5]]))
        model[1].weight.copy_(torch.tensor([[-0.2, 0.8]]))
    return model


def test_the_best_mask_by_magnitude_within_each_layer():
    model = small()
    amc = make(model, episodes=40, warmup=40)
    assert amc.mask().density == 1.0
    tried = []

    def evaluate():  # wants all of the last layer: two of three weights
        tried.append(amc.mask())
        assert not model[0].weight[~tried[-1]["0.weight"]].any(), "the model computes with the mask"
        return tried[-1].layers[1].density

    mask = amc.commit(evaluate)
    assert {m.kept for m in tried} == {3}
    assert mask["0.weight"].tolist() == [[False, True], [False, False]]
    assert mask["1.weight"].tolist() == [[True, True]]
    assert amc.commit() == mask == amc.mask()


def test_a_round_trains_everything_and_cuts_at_its_end():
    model = seeded(ConvNet)
    amc = make(model, select="paper")
    masks = []
    for density in (1.0, 0.5):  # a further round keeps the mask
        optimizer = torch.optim.SGD(amc.param_groups(0.1), momentum=0.9)
        model(x).square().mean().backward()
        optimizer.step()
        amc.step()
        assert amc.mask().density == density and amc.penalty() == 0
        masks.append(amc.end_round(lambda: model.eval()(x).square().mean().item()))
        model.train()
    assert masks[0].kept == round(0.5 * 324)
    assert masks[1] == masks[0]


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode, contextlib.nullcontext])
def test_the_agent_learns_whatever_the_mode_around_it(grad):
    masks = []
    for around in (grad, contextlib.nullcontext):
        amc = make(seeded(lambda: linears(4, 5, 3)), episodes=10)
        with around():
            masks.append(amc.commit(lambda amc=amc: amc.mask().layers[0].density))
    assert masks[0] == masks[1]


def test_an_attempt_that_fails_leaves_no_mask_behind():
    amc = make(small())

    def failing():
        raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        amc.commit(failing)
    assert amc.mask().density == 1.0
    assert amc.harden(lambda: 0.5).kept == 3


def test_it_needs_an_evaluate_function():
    with pytest.raises(prunus.SettingError, match="amc compares masks by their accuracy"):
        make(small()).end_round()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"target_density": 0.0}, "target_density=0.0"),
        ({"target_density": 1.5}, "target_density=1.5"),
        ({"target_density": math.nan}, "target_density=nan"),
        ({"target_density": 0.05, "min_keep": 0.1}, "min_keep=0.1.*target_density=0.05"),
        ({"min_keep": -0.1}, "min_keep=-0.1"),
        ({"episodes": 0, "warmup": 0}, "episodes=0"),
        ({"warmup": 7}, "warmup=7.*6 episodes"),
        ({"warmup": -1}, "warmup=-1"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_bad_settings(wrong, message):
    model = small()
    with pytest.raises(prunus.SettingError, match=message):
        make(model, **wrong)
    assert list(model.state_dict()) == ["0.weight", "1.weight"]


@pytest.mark.parametrize("missing", ["stable_baselines3", "gymnasium"])
def test_without_the_extra_it_says_so_before_anything_is_attached(monkeypatch, missing):
    ours = {"prunus.methods.amc.agent", "prunus.methods.amc.environment"}
    for name in [*sys.modules]:
        if name.split(".")[0] == missing or name in ours:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(prunus.methods.amc, "agent")
    monkeypatch.setitem(sys.modules, missing, None)
    model = small()
    with pytest.raises(prunus.SettingError, match=rf"{missing}.*pip install .*\[amc\]"):
        make(model)
    assert list(model.state_dict()) == ["0.weight", "1.weight"]


def test_settings_in_the_ticket():
    found = make(small(), seed=3).ticket().manifest.settings
    own = {"target_density": 0.5, "episodes": 6, "warmup": 3, "min_keep": 0.0, "seed": 3}
    assert {name: found[name] for name in own} == own


# Several processes


def worker(rank):
    model = seeded(ConvNet)
    amc = make(model, episodes=12, warmup=5, select="paper")
    torch.manual_seed(rank)  # as in a run: every process has its own generators and its own images
    np.random.seed(rank)
    batch = torch.randn(4, 2, 5, 5)

    def evaluate():
        torch.rand(rank + 1)
        score = model.eval()(batch).detach().square().mean()
        dist.all_reduce(score)
        return score.item()

    return dict(amc.commit(evaluate))


def test_two_processes_find_the_same_mask():
    one, two = map(prunus.Mask, found_by_two(worker))
    assert one == two
    assert one.kept == round(0.5 * one.total)
