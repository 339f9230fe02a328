"""How much a kept weight of CS counts is learned with the mask."""

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.optim.swa_utils import AveragedModel

import prunus
from prunus.gates import plain_tensors
from prunus.methods.common import learned_size
from prunus.methods.common.learned_size import LearnedSize
from support.models import mlp, seeded

x = torch.tensor([[1.0, 2.0]])
batch = torch.linspace(-1, 1, 24).view(4, 6)


def attach(model=None, steps=40, **settings):
    settings = {"target_density": 0.5, "select": "all", "penalty": 0.0, **settings}
    return prunus.ContinuousSparsification(model or two_weights(), steps=steps, **settings)


def two_weights():
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[3.0, -1.0]]))
    return model


def wide():
    return seeded(lambda: nn.Linear(2, 30, bias=False))


def train(cs, steps, batch=x):
    """To larger outputs."""
    optimizer = torch.optim.SGD(cs.param_groups(0.01))
    for _ in range(steps):
        (cs.penalty() - cs.model(batch).square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        cs.step()
    return cs


@pytest.mark.parametrize("way", ["native", "torch", "compiled"])
def test_the_pull_and_the_gradient_of_the_weights(way, monkeypatch):
    if way == "torch":
        monkeypatch.setattr(prunus.gates.native, "takes", lambda *_: False)
    cs = attach()
    gate = cs.gates["weight"]
    gate.size.fill_(2.0)
    gate.settling.fill_(1.5)
    model = cs.model
    if way == "compiled":
        torch._dynamo.reset()
        model = torch.compile(model, backend="eager", fullgraph=True)
    # gates are 1/2, so v = 2 * 1.5 * 0.5 * w = (4.5, -1.5), and the output is 1.5
    output = model(x)
    assert output.item() == 1.5
    output.sum().backward()
    # sum of v * dL/dv = 4.5 * 1 - 1.5 * 2; and dL/dw = 1.5 * (1, 2)
    assert gate.take_pull().item() == 1.5
    assert cs.weights["weight"].grad.tolist() == [[1.5, 3.0]]
    assert gate.take_pull().item() == 0
    for _ in range(2):  # as gradients do, it adds up
        model(x).sum().backward()
    assert gate.take_pull().item() == 3.0
    torch._dynamo.reset()


@pytest.mark.parametrize("by_torch", [True, False])
def test_the_median_kept_gate_counts_as_the_size(by_torch, monkeypatch):
    if by_torch:
        monkeypatch.setattr(prunus.gates.native, "takes", lambda *_: False)
    model = nn.Linear(5, 1, bias=False)
    weight = model.weight.detach().clone()
    cs = attach(model, steps=4)
    assert torch.equal(model.weight, weight)
    with torch.no_grad():
        cs.gates["weight"].score.copy_(torch.tensor([[4.0, 3.0, 2.0, -1.0, -2.0]]))
    cs._size.exponent = 0.5
    for _ in range(3):
        cs.step()
    gate, beta = cs.gates["weight"], cs.temperature
    u = beta * gate.score.detach()
    opening = 2 * torch.sigmoid(u[u > 0].median())
    assert 1.3 < opening < 2
    factor = 2 * opening.sqrt() / opening  # k / sigmoid(beta*z)
    torch.testing.assert_close(model.weight, factor * torch.sigmoid(u) * weight)
    model.weight.sum().backward()
    # dL/ds = c * beta * m * (1 - m) * w
    m = torch.sigmoid(u)
    torch.testing.assert_close(
        gate.score.grad, factor * beta * m * (1 - m) * weight, atol=1e-6, rtol=1e-4
    )


class Pulled:
    """A gate that is pulled like this."""

    def __init__(self, pull):
        self.pull = pull

    def take_pull(self):
        return torch.tensor(self.pull)


def test_the_exponent_by_hand():
    size = LearnedSize()
    assert size.now(0.0) == 1  # gates of one half
    size.learn([Pulled(5.0)], steps=80)
    assert size.exponent == 1  # no gate has opened yet: nothing to learn
    assert size.now(50.0) == pytest.approx(2)
    size.learn([Pulled(3.0), Pulled(1.0), Pulled(0.0)], steps=80)
    assert size.exponent == pytest.approx(0.9)  # 8/80 of the way, the first pull being the unit
    assert size.now(50.0) == pytest.approx(2**0.9)
    size.learn([Pulled(-2.0)], steps=80)  # rms(4, -2) is the root of 10
    assert size.exponent == pytest.approx(0.9 + 0.1 * 2 / 10**0.5)
    before = size.exponent
    for nothing in (0.0, float("inf"), float("nan")):
        size.learn([Pulled(nothing)], steps=80)
    assert size.exponent == before
    size.learn([Pulled(-99.0)], steps=1)
    assert size.exponent == 1
    size.learn([Pulled(99.0)], steps=1)
    assert size.exponent == 0
    assert size.now(50.0) == 1


def test_processes_add_their_pulls(monkeypatch):
    size = LearnedSize()
    size.now(50.0)
    monkeypatch.setattr(learned_size, "sum_over_processes", lambda ours: ours - 5.0)
    size.learn([Pulled(4.0)], steps=80)
    assert size.exponent == 1  # alone it would have fallen
    monkeypatch.setattr(learned_size, "sum_over_processes", lambda ours: ours)
    size.learn([Pulled(4.0)], steps=80)
    assert size.exponent < 1


def test_a_model_that_is_converted_goes_on_learning():
    cs = train(attach(), 3)
    cs.model.double()
    train(cs, 1, x.double())
    cs.model(x.double()).sum().backward()
    assert cs.gates["weight"].take_pull().dtype == torch.float64


@pytest.mark.parametrize(("target", "size"), [(100.0, 2.0), (0.0, 1.0)])
def test_weights_grow_where_the_loss_wants_it(target, size):
    cs = attach(wide(), steps=60)
    for _ in range(60):
        (cs.model(x).square().mean() - target * cs.model(x).abs().mean()).backward()
        cs.step()  # no optimiser: the weights stay
    assert float(cs.gates["weight"].size) == pytest.approx(size, abs=0.02)


def test_what_it_is_is_folded_when_the_search_is_over():
    cs = train(attach(wide()), 40)
    size, weight = cs.gates["weight"].size.clone(), plain_tensors(cs.model)["weight"].clone()
    assert 1 < size <= 2
    with cs.hard():
        hard = cs.model(x)
    kept = cs.harden()["weight"]
    torch.testing.assert_close(cs.model(x), hard)
    assert cs.gates["weight"].size == 1
    cs.strip()
    torch.testing.assert_close(cs.model.weight, torch.where(kept, size * weight, 0.0))


def test_a_further_round_begins_where_the_last_has_ended():
    cs = train(attach(wide(), rewind_step=None), 40)
    cs.commit()
    assert cs.gates["weight"].size > 1
    with cs.hard():
        hard = cs.model(x)
    cs.end_round()
    torch.testing.assert_close(cs.model(x), hard)
    assert cs.gates["weight"].size == 1


def test_weights_that_were_rewound_count_as_themselves():
    cs = train(attach(wide(), rewind_step=0, rewind=True), 40)
    early = cs._rewind_weights["weight"]
    cs.end_round()
    kept = cs.harden()["weight"]
    torch.testing.assert_close(cs.model.weight.detach(), torch.where(kept, early, 0.0))


@pytest.mark.parametrize("leave", ["hard", "ticket", "strip"])
def test_weights_rewound_by_hand_count_as_themselves_everywhere(leave):
    cs = train(attach(wide(), rewind_step=0), 40)
    early = cs._rewind_weights["weight"]
    kept = cs.commit()["weight"]
    assert cs.gates["weight"].size > 1
    cs.rewind()
    if leave == "hard":
        with cs.hard():
            found = cs.model.weight
    elif leave == "ticket":
        found = cs.ticket("current").weights["weight"]
    else:
        found = cs.strip().weight
    assert torch.equal(found, torch.where(kept, early, 0.0))


@pytest.mark.parametrize("compiled", [False, True])
def test_weights_that_are_frozen_have_a_size_all_the_same(compiled):
    found = []
    for frozen in (False, True):
        cs = attach()
        cs.weights["weight"].requires_grad_(not frozen)
        model = torch.compile(cs.model, backend="eager") if compiled else cs.model
        model(x).sum().backward()
        found.append(cs.gates["weight"].take_pull().item())
    assert found == [1.0, 1.0]  # of v = (3, -1) and dL/dv = (1, 2)
    torch._dynamo.reset()


def test_a_step_that_was_skipped_leaves_no_pull_behind():
    cs = attach()
    optimizer = torch.optim.SGD(cs.param_groups(0.01))
    cs.follow(optimizer)
    (cs.model(x).sum() * float("inf")).backward()
    optimizer.zero_grad()  # as after a step that a GradScaler skipped
    assert cs.gates["weight"].take_pull().item() == 0


def test_a_pull_of_another_device_is_felt_there():
    gate = attach().gates["weight"]
    gate.feel(torch.ones((), device="meta"))  # `fully_shard` on a GPU moves parameters and buffers
    assert gate._pull.grad.device.type == "meta"


def test_an_average_of_parameters_alone_is_given_the_size():
    cs = attach(wide())
    average = copy.deepcopy(cs.model)
    train(cs, 40)
    cs.commit()
    with torch.no_grad():  # and none of the buffers
        for mean, now in zip(average.parameters(), cs.model.parameters(), strict=True):
            mean.copy_(now)
    prunus.strip(cs.give_mask(average))
    assert cs.gates["weight"].size > 1
    cs.strip()
    torch.testing.assert_close(average.weight, cs.model.weight)


@pytest.mark.parametrize("then", ["end_round", "harden", "rewind"])
def test_an_average_keeps_its_size_when_the_model_no_longer_has_it(then):
    cs = train(attach(wide(), rewind_step=0), 40)
    cs.commit()
    average = copy.deepcopy(cs.model)
    assert cs.gates["weight"].size > 1
    with cs.hard():
        hard = cs.model(x)
    getattr(cs, then)()
    prunus.strip(cs.give_mask(average))
    torch.testing.assert_close(average(x), hard)


def test_a_search_that_is_resumed_learns_the_same():
    cs, other = (attach(seeded(mlp)) for _ in range(2))
    train(cs, 30, batch)
    other.model.load_state_dict(cs.model.state_dict())
    other.load_state_dict(cs.state_dict())
    for each in (cs, other):
        train(each, 10, batch)
    assert other._size == cs._size
    assert torch.equal(other.model(batch), cs.model(batch))


@pytest.mark.parametrize(
    "settings",
    [
        {"mask_scale": "constant"},
        {"mask_scale": "none"},
        {"scores": "optimiser"},
        {"target_density": None},
    ],
)
def test_it_is_learned_only_where_it_can_be(settings):
    assert train(attach(nn.Linear(2, 30), **settings), 3)._size == LearnedSize()
    assert train(attach(nn.Linear(2, 30)), 3)._size != LearnedSize()


def test_batchnorm_takes_any_factor_out_and_has_the_constant_one():
    cs = attach(nn.Sequential(nn.Linear(2, 30), nn.BatchNorm1d(30)))
    assert cs.gates["0.weight"].scale == 2
    assert cs.gates["0.weight"].size is None


def test_saved_copied_and_averaged_models_compute_the_same():
    cs = train(attach(seeded(mlp), target_density=0.3), 30, batch)
    other = attach(seeded(mlp, 1), target_density=0.3)
    other.model.load_state_dict(cs.model.state_dict())
    average = AveragedModel(cs.model)
    train(cs, 2, batch)
    average.update_parameters(cs.model)
    assert other.gates["0.weight"].settling > cs.gates["0.weight"].settling > 1
    other.model.load_state_dict(cs.model.state_dict())
    assert torch.equal(other.model(batch), cs.model(batch))
    [settled] = {float(b) for name, b in average.named_buffers() if name.endswith("settling")}
    assert settled == cs.gates["0.weight"].settling


def test_a_compiled_model_is_compiled_once():
    cs, counter = attach(seeded(mlp)), CompileCounter()
    compiled = torch.compile(cs.model, backend=counter, fullgraph=True)
    for _ in range(3):
        train(cs, 10, batch)
        with torch.no_grad():
            torch.testing.assert_close(compiled(batch), cs.model(batch))
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_others_have_no_such_buffer():
    cs = attach(mask_scale="constant")
    assert list(cs.gates["weight"].state_dict()) == ["score", "temperature"]
