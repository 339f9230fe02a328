"""What training loops ask of methods: following an optimiser."""

import copy

import pytest
import torch

import prunus
from support.models import ConvNet, images, seeded

x = images(8, 2, 5, 5)()

METHODS = {
    "cs": ("cs", {"mask_init": 0.01, "penalty": 1e-3}),
    "cs with a budget": ("cs", {"target_density": 0.4, "penalty": 1e-3}),
    "imp": ("imp", {"rate": 0.3}),
    "iss": ("iss", {"penalty": 1e-3, "score_lr": 5.0}),
    "rigl": ("rigl", {"target_density": 0.3, "every": 2}),
}


def attach(name, seed=0, **more):
    cls, settings = METHODS[name]
    settings = {"steps": 6, "select": "all", "rewind_step": 2, **settings, **more}
    return prunus.METHODS[cls](seeded(ConvNet, seed), **settings)


def adam(method):
    return torch.optim.AdamW(method.param_groups(0.01, weight_decay=0.1))


def train(method, optimizer, steps, parts=1, *, by_hand=False):
    """A loop of somebody else, with accumulation over `parts`; and one call of ours, or none."""
    torch.manual_seed(9)  # for methods that draw masks
    for _ in range(steps):
        for part in x.split(len(x) // parts):
            ((method.model(part).square().mean() + method.penalty()) / parts).backward()
        optimizer.step()
        if by_hand:
            method.step()
        method.model.zero_grad()


def assert_same(one, two):
    a, b = one.model.state_dict(), two.model.state_dict()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert one.mask() == two.mask()
    assert one.life == two.life


# Following an optimiser


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_follows_equals_one_that_is_told(name, parts):
    told, following = attach(name), attach(name)
    for _ in range(2):
        train(told, adam(told), 6, parts, by_hand=True)
        optimizer = adam(following)  # another one for each round: the old one is not followed now
        following.follow(optimizer)
        train(following, optimizer, 6, parts)
        assert_same(told, following)
        assert told.end_round() == following.end_round()
    assert following.round == 3


@pytest.mark.parametrize("name", METHODS)
def test_a_step_by_hand_is_refused_while_the_optimiser_makes_it(name):
    method = attach(name)
    method.follow(adam(method))
    method.step()  # its optimiser is gone, so nothing is followed any more
    optimizer = adam(method)
    with method.follow(optimizer):
        with pytest.raises(prunus.AttachError, match=r"would count the step twice: leave it out"):
            method.step()
        assert method.t == 1
        train(method, optimizer, 1)
        assert method.t == 2
        with pytest.raises(prunus.AttachError, match="twice"):
            method.step()
    train(method, optimizer, 1)
    assert method.t == 2
    method.step()
    assert method.t == 3


def test_one_optimiser_is_followed_at_a_time_and_each_step_counts_once():
    cs = attach("cs")
    first, second = adam(cs), adam(cs)
    cs.follow(first)
    cs.follow(second)
    train(cs, first, 1)
    assert cs.t == 0
    cs.follow(second)
    train(cs, second, 1)
    assert cs.t == 1


def test_only_an_optimiser_can_be_followed():
    cs = attach("cs")
    with pytest.raises(prunus.SettingError, match=r"follow\(list\): give it the torch"):
        cs.follow(cs.param_groups(0.1))


@pytest.mark.parametrize("name", METHODS)
def test_following_a_hardened_method_changes_nothing_but_the_kept_weights(name):
    told, following = attach(name), attach(name)
    optimizers = adam(told), adam(following)
    following.follow(optimizers[1])
    train(told, optimizers[0], 6, by_hand=True)
    train(following, optimizers[1], 6)
    mask = told.harden()
    assert following.harden() == mask
    following.step()  # does nothing, and so does no harm
    for method, optimizer in zip((told, following), optimizers, strict=True):
        train(method, optimizer, 3)
    assert_same(told, following)
    assert following.mask() == mask
    assert following.t == 6


@pytest.mark.parametrize("leave", [lambda m: m.strip(), lambda m: prunus.strip(m.model)])
def test_the_optimiser_of_a_model_that_was_stripped_still_works(leave):
    cs = attach("cs", mask_init=0.5)
    optimizer = adam(cs)
    cs.follow(optimizer)
    train(cs, optimizer, 6)
    leave(cs)
    before = cs.model.fc.weight.detach().clone()
    cs.model(x).square().mean().backward()
    optimizer.step()
    assert not torch.equal(cs.model.fc.weight, before)


@pytest.mark.parametrize("name", METHODS)
def test_resumed_while_following(name):
    whole, part = attach(name), attach(name)
    one, two = adam(whole), adam(part)
    whole.follow(one)
    train(whole, one, 3)
    train(whole, one, 3)
    part.follow(two)
    train(part, two, 3)
    states = part.model.state_dict(), part.state_dict(), two.state_dict()

    resumed = attach(name, seed=1)
    optimizer = adam(resumed)
    resumed.follow(optimizer)  # before loading or after it
    for thing, state in zip((resumed.model, resumed, optimizer), states, strict=True):
        thing.load_state_dict(copy.deepcopy(state))
    train(resumed, optimizer, 3)
    assert_same(whole, resumed)


def test_a_copy_follows_nothing():
    cs = attach("cs with a budget")
    optimizer = adam(cs)
    cs.follow(optimizer)
    train(cs, optimizer, 2)
    twin, other = copy.deepcopy((cs, optimizer))
    train(cs, optimizer, 1)
    assert (cs.t, twin.t) == (3, 2)
    assert not other._optimizer_step_post_hooks
    twin.step()
    assert (cs.t, twin.t) == (3, 3)
