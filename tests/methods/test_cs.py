"""Continuous Sparsification: schedules, rounds, rewinding, parameter groups, errors."""

import copy
import math

import pytest
import torch
from torch import nn

import prunus
from prunus import ContinuousSparsification
from prunus.gates import plain_tensors
from prunus.methods.cs import PAPER_STEPS
from support.models import ConvNet, images, mlp, seeded

x = images(4, 2, 5, 5)()


def set_scores(cs, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        for gate in cs.gates.values():
            gate.score.normal_()


def train(cs, steps, lr=0.05, score_lr=1.0):
    optimizer = torch.optim.SGD(cs.param_groups(lr, score_lr=score_lr), momentum=0.9)
    for _ in range(steps):
        (cs.model(x).square().mean() + cs.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        cs.step()


# Temperature


def test_temperature_rises_every_step_and_stops_at_the_end():
    cs = ContinuousSparsification(seeded(ConvNet), steps=4, final_temperature=16.0)
    seen = [cs.temperature]
    for _ in range(6):
        cs.step()
        seen.append(cs.temperature)
    assert seen == pytest.approx([1, 2, 4, 8, 16, 16, 16])


@pytest.mark.parametrize(("epochs", "batches"), [(3, 4), (5, 2)])
def test_temperature_per_epoch_is_that_of_the_published_code(epochs, batches):
    cs = ContinuousSparsification(
        seeded(ConvNet), steps=epochs * batches, final_temperature=200.0, anneal_every=batches
    )
    increase = 200.0 ** (1 / (epochs - 1))
    expected = 1.0
    for epoch in range(epochs):
        if epoch > 0:
            expected *= increase
        for _ in range(batches):
            assert cs.temperature == pytest.approx(expected)
            cs.step()
    assert expected == pytest.approx(200.0)
    assert cs.temperature == pytest.approx(200.0)


def test_temperature_is_a_buffer_of_every_gate():
    model = seeded(ConvNet)
    cs = ContinuousSparsification(model, steps=2, final_temperature=9.0)
    cs.step()
    temperatures = {n: b for n, b in model.named_buffers() if n.endswith("temperature")}
    assert len(temperatures) == 2
    assert all(b.item() == 3.0 and b.dim() == 0 for b in temperatures.values())
    assert temperatures.keys() <= model.state_dict().keys()


# Rounds


def four_scores(mask_init, **settings):
    model = nn.Linear(4, 1, bias=False)
    cs = ContinuousSparsification(
        model,
        steps=2,
        mask_init=mask_init,
        final_temperature=4.0,
        select="all",
        **settings,
    )
    return model, cs, cs.gates["weight"]


def test_end_round_by_hand():
    _, cs, gate = four_scores(mask_init=0.5)
    cs.step()
    cs.step()
    with torch.no_grad():
        gate.score.copy_(torch.tensor([[2.0, 0.1, -0.25, -3.0]]))
    mask = cs.end_round()
    # beta_T * s_T = 8, 0.4, -1, -12, and then at most s0
    torch.testing.assert_close(gate.score.detach(), torch.tensor([[0.5, 0.4, -1.0, -12.0]]))
    assert cs.temperature == 1.0
    assert (cs.round, cs.t) == (2, 0)
    assert mask["weight"].tolist() == [[True, True, False, False]]
    # A suppressed weight stays as suppressed as it was: sigmoid(4 * -3) before and after.
    assert torch.sigmoid(gate.score)[0, 3].item() == pytest.approx(1 / (1 + math.exp(12)))


@pytest.mark.parametrize("mask_init", [-0.5, 0.0, 0.5])
def test_between_rounds_everything_speaks_of_the_mask_that_the_round_found(mask_init):
    model, cs, gate = four_scores(mask_init, mask_scale="none")
    cs.step()
    with torch.no_grad():
        gate.score.copy_(torch.tensor([[2.0, 0.1, -0.25, -3.0]]))
        model.parametrizations.weight.original.copy_(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    mask = cs.end_round()
    kept = torch.tensor([[1.0, 2.0, 0.0, 0.0]])
    assert cs.mask() == prunus.Mask.of(model) == cs.ticket().mask == mask
    assert mask.kept == 2
    assert cs.stats().kept == 2
    with cs.hard():
        assert torch.equal(model.weight, kept)
    assert torch.equal(cs.ticket("current").weights["weight"], kept)
    assert torch.equal(prunus.strip(copy.deepcopy(model)).weight, kept)
    hardened = copy.deepcopy(cs)
    assert hardened.harden() == mask
    assert torch.equal(hardened.model.weight, kept)
    # The next round starts from the soft gates and finds its own mask.
    torch.testing.assert_close(model.weight[0, 0], torch.sigmoid(gate.score[0, 0]))
    cs.step()
    assert torch.equal(cs.mask()["weight"], gate.score > 0)


def test_a_second_round_removes_more_and_does_not_revive():
    cs = ContinuousSparsification(
        seeded(ConvNet), steps=30, mask_init=0.02, penalty=1e-3, final_temperature=50.0
    )
    train(cs, 30, score_lr=0.3)
    first = cs.end_round()
    train(cs, 30, score_lr=0.3)
    second = cs.end_round()
    assert 0 < first.density < 1
    assert (second - first).kept == 0
    assert second.kept <= first.kept


def test_rounds_are_named_in_the_ticket():
    cs = ContinuousSparsification(seeded(ConvNet), steps=3, mask_init=0.1)
    rounds = [cs.ticket().manifest.settings["round"]]
    cs.step()
    rounds.append(cs.ticket().manifest.settings["round"])
    cs.end_round()
    rounds.append(cs.ticket().manifest.settings["round"])
    cs.step()
    rounds.append(cs.ticket().manifest.settings["round"])
    assert rounds == [1, 1, 1, 2]


# Rewinding


@pytest.mark.parametrize("rewind_step", [0, 3])
@pytest.mark.parametrize("automatic", [False, True])
def test_rewinding_restores_everything_at_k(rewind_step, automatic):
    model = seeded(ConvNet)
    cs = ContinuousSparsification(
        model, steps=6, mask_init=0.1, rewind_step=rewind_step, rewind=automatic
    )
    train(cs, rewind_step)
    at_k = copy.deepcopy(model)
    train(cs, 6 - rewind_step)
    set_scores(cs)
    moved = plain_tensors(model)
    early = plain_tensors(at_k)
    # Everything moved, but for a bias that BatchNorm makes useless.
    assert {n for n in moved if torch.equal(moved[n], early[n])} <= {"conv1.bias"}
    mask = cs.end_round()
    if not automatic:
        cs.rewind()
    now = plain_tensors(model)
    assert now.keys() == early.keys() == seeded(ConvNet).state_dict().keys()
    assert all(torch.equal(now[n], early[n]) for n in now)

    ticket = cs.ticket()
    assert ticket.manifest.rewind_point == rewind_step
    retrained = ticket.apply(seeded(ConvNet, 9)).eval()
    expected = mask.apply(prunus.remove(at_k)).eval()
    assert torch.equal(retrained(x), expected(x))


def test_the_paper_s_rounds_go_on_with_the_weights():
    model = seeded(ConvNet)
    cs = ContinuousSparsification(model, steps=3, mask_init=0.1)
    train(cs, 3)
    before = {n: t.clone() for n, t in plain_tensors(model).items()}
    cs.end_round()
    assert all(torch.equal(t, before[n]) for n, t in plain_tensors(model).items())


def test_a_later_round_does_not_move_the_rewind_point():
    cs = ContinuousSparsification(seeded(ConvNet), steps=3, mask_init=0.1, rewind_step=2)
    train(cs, 3)
    first = dict(cs.ticket(whole=True).weights)
    cs.end_round()
    train(cs, 3)
    second = cs.ticket(whole=True).weights
    assert all(torch.equal(second[n], first[n]) for n in first)


@pytest.mark.parametrize(
    ("rewind_step", "message"), [(2, "step 2 of round 1 has not been reached"), (None, "None")]
)
def test_without_early_weights_there_is_no_ticket_to_retrain(rewind_step, message):
    cs = ContinuousSparsification(seeded(ConvNet), steps=3, mask_init=0.1, rewind_step=rewind_step)
    cs.step()
    with pytest.raises(prunus.AttachError, match=message):
        cs.ticket()
    with pytest.raises(prunus.AttachError, match="no weights"):
        cs.rewind()
    assert cs.ticket("current").manifest.rewind_point is None


# Parameter groups


@pytest.mark.parametrize("select", ["paper", "all", "conv2.weight"])
def test_every_trainable_parameter_is_in_one_group(select):
    model = seeded(ConvNet)
    model.conv1.bias.requires_grad_(False)
    cs = ContinuousSparsification(model, steps=3, select=select)
    weights, scores = cs.param_groups(0.1, weight_decay=1e-3, momentum=0.5)
    members = [id(p) for group in (weights, scores) for p in group["params"]]
    trainable = [id(p) for p in model.parameters() if p.requires_grad]
    assert sorted(members) == sorted(trainable)
    assert {id(p) for p in scores["params"]} == {id(g.score) for g in cs.gates.values()}
    assert (weights["lr"], weights["weight_decay"], weights["momentum"]) == (0.1, 1e-3, 0.5)
    assert (scores["weight_decay"], scores["momentum"]) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("steps", "factor"), [(PAPER_STEPS, 1), (10 * PAPER_STEPS, 1), (PAPER_STEPS // 5, 5**0.5)]
)
def test_automatic_learning_rate_of_scores(steps, factor):
    cs = ContinuousSparsification(seeded(ConvNet), steps=steps)
    assert cs.param_groups(0.1)[1]["lr"] == pytest.approx(0.1 * factor)
    assert cs.param_groups(0.1, score_lr=7.0)[1]["lr"] == 7.0


def test_weight_decay_of_the_optimiser_does_not_reach_scores():
    cs = ContinuousSparsification(seeded(ConvNet), steps=3, mask_init=0.5, penalty=0.0)
    optimizer = torch.optim.SGD(cs.param_groups(0.1, weight_decay=0.5), weight_decay=0.5)
    for parameter in cs.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = plain_tensors(cs.model)["conv1.weight"].detach().clone()
    optimizer.step()
    assert all((gate.score == 0.5).all() for gate in cs.gates.values())
    assert not torch.equal(plain_tensors(cs.model)["conv1.weight"], before)


# Errors


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"steps": -3}, "steps=-3"),
        ({"final_temperature": 1.0}, "final_temperature=1.0"),
        ({"final_temperature": float("inf")}, "final_temperature=inf"),
        ({"final_temperature": float("nan")}, "final_temperature=nan"),
        ({"mask_init": float("nan")}, "mask_init=nan"),
        ({"penalty": -1.0}, "penalty=-1.0"),
        ({"penalty": float("nan")}, "penalty=nan"),
        ({"mask_scale": "both"}, "mask_scale='both'"),
        ({"anneal_every": 0}, "anneal_every=0"),
        ({"anneal_every": 11}, "anneal_every=11"),
        ({"rewind_step": 11}, "rewind_step=11"),
        ({"rewind_step": -1}, "rewind_step=-1"),
        ({"rewind_step": None, "rewind": True}, "rewind=True"),
        ({"granularity": "row"}, "granularity='row'"),
    ],
)
def test_bad_settings_are_named_before_anything_is_touched(settings, message):
    model = seeded(ConvNet)
    with pytest.raises(prunus.SettingError, match=message.replace("(", r"\(")):
        ContinuousSparsification(model, **{"steps": 10, **settings})
    assert list(model.state_dict()) == list(seeded(ConvNet).state_dict())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value):
    model = seeded(mlp)
    with torch.no_grad():
        model[2].weight[0, 0] = value
    with pytest.raises(prunus.SelectionError, match=r"2\.weight holds NaN or infinite"):
        ContinuousSparsification(model, steps=3, select="all")


def test_settings_are_in_the_ticket():
    cs = ContinuousSparsification(
        seeded(ConvNet), steps=3, mask_init=0.1, granularity=(2, 2), select="conv*.weight"
    )
    settings = cs.ticket(task="toy", seed=5, metrics={"accuracy": 0.5}).manifest
    assert (settings.method, settings.task, settings.seed) == ("cs", "toy", 5)
    assert settings.metrics == {"accuracy": 0.5}
    assert settings.settings["mask_init"] == 0.1
    assert settings.settings["granularity"] == [2, 2]


def test_rounds_with_rewinding_start_from_the_same_weights():
    # Appendix D: the weights go back to w^(k) between rounds, the scores go on.
    model = seeded(ConvNet)
    cs = ContinuousSparsification(
        model, steps=4, mask_init=0.05, select="all", rewind_step=1, rewind=True
    )
    masks = []
    for _ in range(2):
        optimizer = torch.optim.SGD(cs.param_groups(0.1, score_lr=20.0), momentum=0.9)
        for t in range(4):
            (model(x).square().mean() + cs.penalty()).backward()
            optimizer.step()
            optimizer.zero_grad()
            cs.step()
            if cs.round == 1 and t == 0:
                early = {n: w.clone() for n, w in plain_tensors(model).items()}
        scores = {n: g.score.detach() * cs.temperature for n, g in cs.gates.items()}
        masks.append(cs.end_round())
        for name, tensor in plain_tensors(model).items():
            assert torch.equal(tensor, early[name]), name
        for name, gate in cs.gates.items():
            assert torch.equal(gate.score, scores[name].clamp(max=0.05))
    assert 0 < masks[1].kept <= masks[0].kept < masks[0].total
