"""CS with a budget moves its scores itself: no rate, whatever optimiser, loop and loss scale."""

import copy
import itertools
import warnings

import pytest
import torch
from torch import nn

from prunus import ContinuousSparsification, SettingError
from prunus.errors import SearchWarning
from prunus.gates import plain_tensors
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()


def attach(steps=8, target=0.3, **settings):
    return ContinuousSparsification(
        seeded(ConvNet), steps=steps, target_density=target, select="all", **settings
    )


def train(cs, steps, optimizer=None, *, scale=1.0, parts=1, lr=0.1):
    """Training steps with a loss of the form that GradScaler and accumulation give."""
    optimizer = optimizer or torch.optim.SGD(cs.param_groups(lr))
    for _ in range(steps):
        for part in x.split(len(x) // parts):
            (scale * cs.model(part).square().sum() / len(x)).backward()
        optimizer.step()
        optimizer.zero_grad()
        cs.step()
    return cs


def soft_masks(cs):
    return torch.cat([gate.soft_mask().detach().flatten() for gate in cs.gates.values()])


def test_a_step_by_hand():
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0, 3.0, -4.0]]))
    cs = ContinuousSparsification(model, steps=4, target_density=0.5, select="all", penalty=0.0)
    score = cs.gates["weight"].score
    model(torch.ones(1, 4)).sum().backward()
    cs.step()
    # With u = 0 and c = 2, dL/du = c/4 * w * x. The density is 0.5 + 0.5 * (1 - 1/3.2)^3 = 0.66, so
    # three of four scores are above zero, and the lowest is zero.
    expected = torch.tensor([[-0.5, 1.0, -1.5, 2.0]]) + 1.5
    torch.testing.assert_close(score.detach(), 1e6 * expected)
    assert score.grad is None
    # Above zero are 1, 2.5 and 3.5 million.
    assert cs.temperature == pytest.approx((0.001 + 20 * (1 / 4) ** 6) / 2.5e6)
    before = score.detach().clone()
    score.grad = torch.tensor([[0.1, 0.2, 0.3, 0.4]]) * cs.temperature
    cs.step()
    # Late gradients weigh more, up to where the cosine ends: 200^(1/4) * (1 + cos(pi/4)) / 2.
    moved = before - score.detach()
    weight = 200**0.25 * (1 + 0.5**0.5) / 2
    torch.testing.assert_close(
        moved - moved[0, 0], 1e6 * weight * torch.tensor([[0, 0.1, 0.2, 0.3]])
    )


def test_the_temperature_counts_in_units_of_the_spread():
    cs = attach(steps=300, final_temperature=50.0)
    torch.manual_seed(0)
    seen = []
    for _ in range(300):
        with torch.no_grad():
            for gate in cs.gates.values():
                gate.score.add_(torch.randn_like(gate.score))
        cs.step()
        scores = torch.cat([gate.score.detach().flatten() for gate in cs.gates.values()])
        seen.append(cs.temperature * scores[scores > 0].median().item())
    assert seen[:270] == pytest.approx(
        [0.001 + 5 * (t / 300) ** 6 for t in range(1, 271)], rel=1e-4
    )
    late = [0.001 + 5 * (t / 300) ** 6 * 10 ** ((t - 270) / 30) for t in range(271, 301)]
    assert all(ours >= theirs * 0.9999 for ours, theirs in zip(seen[270:], late, strict=True))


@pytest.mark.parametrize(("closest", "beta"), [(0.5, 200.0), (0.005, 1000.0), (0.0, 2e6)])
def test_the_temperature_rises_until_few_gates_are_in_transition(closest, beta):
    """Of 200 gates 100 are kept, the spread is 1, and 2 for 100 may be nearer than `closest`."""
    cs = ContinuousSparsification(
        nn.Linear(200, 1, bias=False), steps=10, target_density=0.5, select="all"
    )
    with torch.no_grad():
        near = torch.tensor([closest / 2, closest, closest, closest])
        scores = torch.cat([near, torch.ones(96), torch.zeros(1), -torch.ones(99)])
        cs.gates["weight"].score.copy_(scores[None])
    for _ in range(9):
        cs.step()
    assert cs.temperature == pytest.approx(0.001 + 20 * 0.9**6, rel=1e-4)
    cs.step()
    # The third nearest, besides the threshold itself, is to be decided: beta * closest = 5.
    assert cs.temperature == pytest.approx(beta + 0.001 * beta / 200, rel=1e-4)


def test_the_optimiser_has_the_weights_alone_and_no_rate_of_scores():
    cs = attach()
    [group] = cs.param_groups(0.1, weight_decay=0.5)
    scores = {id(gate.score) for gate in cs.gates.values()}
    assert group["params"] and not scores & {id(p) for p in group["params"]}
    with pytest.raises(SettingError, match=r'score_lr=0.5: .* or make .* scores="optimiser"'):
        cs.param_groups(0.1, score_lr=0.5)
    assert len(attach(scores="optimiser").param_groups(0.1, score_lr=0.5)) == 2
    frozen = ContinuousSparsification(
        seeded(nn.Sequential, 0).append(nn.Linear(9, 9, bias=False)),
        steps=3,
        target_density=0.3,
        select="all",
        freeze_weights=True,
    )
    assert frozen.param_groups(0.1, momentum=0.9) == [{"params": [], "lr": 0.1, "momentum": 0.9}]


def test_without_a_budget_the_scores_are_the_optimiser_s():
    cs = ContinuousSparsification(seeded(ConvNet), steps=3, mask_init=0.1)
    assert cs.settings["scores"] == "optimiser"
    assert attach().settings["scores"] == "method"


@pytest.mark.parametrize("scale", [2.0**-10, 2.0**16])
def test_the_scale_of_the_loss_makes_no_difference(scale):
    frozen = {"freeze_weights": True, "penalty": 0.0}
    ours, theirs = train(attach(**frozen), 8), train(attach(**frozen), 8, scale=scale)
    assert torch.equal(soft_masks(ours), soft_masks(theirs))
    assert ours.harden() == theirs.harden()


def test_adam_does_not_level_the_layers():
    # One layer matters a hundred times more. Adam would move all scores alike.
    densities = {}
    for scores in ("method", "optimiser"):
        torch.manual_seed(0)
        model = nn.ModuleList([nn.Linear(20, 10, bias=False), nn.Linear(20, 10, bias=False)])
        cs = ContinuousSparsification(
            model, steps=50, target_density=0.2, select="all", scores=scores
        )
        optimizer = torch.optim.AdamW(cs.param_groups(1e-3))
        for _ in range(50):
            batch = torch.randn(8, 20)
            (100 * model[0](batch).sum() + model[1](batch).sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
            cs.step()
        densities[scores] = [layer.density for layer in cs.harden().layers]
    assert densities["method"][0] > 0.35
    assert densities["optimiser"][0] < 0.3


def test_gradients_accumulate_until_the_step():
    whole, parts = (attach(penalty=0.0) for _ in range(2))
    for cs in (whole, parts):
        cs.model.eval()  # BatchNorm would see the parts
    train(whole, 3)
    train(parts, 3, parts=2)
    for name, gate in whole.gates.items():
        torch.testing.assert_close(gate.score, parts.gates[name].score, rtol=1e-3, atol=1e-5)


def test_an_overflow_does_not_stay_in_the_scores():
    cs = train(attach(), 2)
    before = soft_masks(cs)
    for gate in cs.gates.values():
        gate.score.grad = torch.full_like(gate.score, torch.inf)
        gate.score.grad.flatten()[0] = torch.nan
    cs.step()
    assert soft_masks(cs).isfinite().all() and not torch.equal(soft_masks(cs), before)
    assert all(gate.score.isfinite().all() for gate in cs.gates.values())


@pytest.mark.parametrize("stop", [1, 5, 8, 11])
def test_resumed_it_goes_on_bit_by_bit(stop):
    def advance(cs, first, last):
        for t in range(first, last):
            train(cs, 1)
            if t == 7:
                cs.end_round()

    whole = attach(target=[0.5, 0.2])
    advance(whole, 0, 14)
    first, second = attach(target=[0.5, 0.2]), attach(target=[0.5, 0.2])
    advance(first, 0, stop)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    second.model.load_state_dict(first.model.state_dict())
    advance(second, stop, 14)
    state, resumed = whole.model.state_dict(), second.model.state_dict()
    assert all(torch.equal(state[name], resumed[name]) for name in state)
    assert whole.temperature == second.temperature
    assert whole.harden() == second.harden()


def test_a_state_of_an_older_version_is_refused():
    cs = attach()
    state = {name: value for name, value in cs.state_dict().items() if name != "spread"}
    with pytest.raises(SettingError, match='make the method with scores="optimiser"'):
        cs.load_state_dict(state)
    attach(scores="optimiser").load_state_dict({**state, "settings": {"steps": 8}})


def test_what_a_round_removed_stays_removed():
    cs = attach(target=[0.5, 0.2])
    masks = []
    for _ in range(4):
        train(cs, 8)
        masks.append(cs.end_round())
    assert all(not (later - earlier).kept for earlier, later in itertools.pairwise(masks))
    assert [m.kept for m in masks] == [round(d * masks[0].total) for d in (0.5, 0.2, 0.2, 0.2)]


def test_removed_gates_are_closed_when_the_next_round_begins_soft():
    cs = train(attach(target=[0.5, 0.2]), 8)
    mask = cs.end_round()
    for _ in range(3):
        train(cs, 1, scale=2.0**16)
        for name, gate in cs.gates.items():
            assert not gate.soft_mask()[~mask[name]].any()
            assert torch.isfinite(cs.model(x)).all() and gate.soft_mask()[mask[name]].min() > 0.4


def test_gradients_of_scores_do_not_disturb_who_clips_by_the_norm_of_the_whole_model():
    cs = attach(steps=40)
    optimizer = torch.optim.SGD(cs.param_groups(0.1))
    own = {id(gate.score) for gate in cs.gates.values()}
    for t in range(40):
        cs.model(x).square().mean().backward()
        norms = [p.grad.norm() for p in cs.model.parameters() if id(p) in own]
        if t:  # the first has no spread to count in yet
            assert torch.stack(norms).norm() < 0.01 * torch.nn.utils.get_total_norm(
                [p.grad for p in cs.model.parameters() if id(p) not in own]
            )
        optimizer.step()
        optimizer.zero_grad()
        cs.step()


def test_the_weights_learn_as_without_the_method_at_first():
    # All gates are open alike until scores differ: attaching is no shock to a trained network.
    plain, cs = seeded(ConvNet), attach(steps=1000)
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    for _ in range(3):
        plain(x).square().sum().div(len(x)).backward()
        optimizer.step()
        optimizer.zero_grad()
    train(cs, 3)
    weights = plain_tensors(cs.model)
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(weights[name], tensor, rtol=0.05, atol=0.02)


# Wrong use speaks


def complaints(cs, call="harden"):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        getattr(cs, call)()
    seen = [w for w in seen if issubclass(w.category, SearchWarning)]
    assert {w.filename for w in seen} <= {__file__}, "it is the caller's line that is shown"
    return [str(w.message) for w in seen]


def test_a_search_as_it_should_be_says_nothing():
    assert complaints(train(attach(steps=200), 200)) == []


@pytest.mark.parametrize("call", ["harden", "end_round", "ticket"])
def test_too_few_steps(call):
    [complaint] = complaints(train(attach(steps=200), 50), call)
    assert "after 50 of 200 steps" in complaint and "call step()" in complaint


@pytest.mark.parametrize("call", ["ticket", "strip"])
@pytest.mark.parametrize(("settings", "kept"), [({"mask_init": 0.1}, "100.0%"), ({}, "0.0%")])
def test_what_is_taken_before_any_step(call, settings, kept):
    cs = attach(**({"target": None} | settings if settings else {}))
    [complaint] = complaints(cs, call)
    assert "step() was never called" in complaint and f"keeps {kept}" in complaint


def test_code_that_runs_without_a_name_is_warned_too():
    with pytest.warns(SearchWarning, match="never called"):
        exec("take()", {"take": attach().ticket})


def test_no_step_at_all():
    assert "after 0 of 200 steps" in complaints(attach(steps=200))[0]


@pytest.mark.parametrize("call", ["harden", "end_round", "ticket", "strip"])
def test_an_empty_network(call):
    cs = train(attach(target=None, mask_init=-0.1), 8, lr=1e-4)
    assert "the mask removes every weight: no score is above zero" in complaints(cs, call)[-1]


def test_gradients_that_the_loop_cleared_too_early():
    cs = attach(steps=200)
    train(cs, 150)
    optimizer = torch.optim.SGD(cs.param_groups(0.1))
    for _ in range(50):
        cs.model(x).square().mean().backward()
        optimizer.step()
        cs.model.zero_grad()
        cs.step()
    complaint = complaints(cs)[0]
    assert "in 50 of 200 steps the scores had no gradient" in complaint
    assert "model.zero_grad()" in complaint


@pytest.mark.parametrize(
    "settings", [{"mask_init": 0.1}, {"target_density": 0.1, "scores": "optimiser"}]
)
def test_an_optimiser_without_the_scores(settings):
    cs = ContinuousSparsification(seeded(ConvNet), steps=4, **settings)
    train(cs, 4, torch.optim.SGD([cs.model.fc.weight], 0.1))
    found = complaints(cs)
    assert "no score has moved in 4 steps: make the optimiser after attaching" in found[0]


def test_an_empty_layer():
    cs = train(attach(steps=200), 200)
    with torch.no_grad():
        cs.gates["conv2.weight"].score.fill_(-1e9)
    [complaint] = complaints(cs)
    assert "1 of 3 layers keep no weight: conv2.weight" in complaint


def test_gates_in_transition_relative_to_the_kept():
    cs = train(attach(steps=200, target=0.1), 200)
    for gate in cs.gates.values():
        gate.temperature.fill_(1e-12)
    [complaint] = complaints(cs)
    assert "100.00% of the gates are still in transition, 988% as many as" in complaint
