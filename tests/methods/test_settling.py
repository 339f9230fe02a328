"""`mask_scale="settling"`: a factor on the soft mask that falls to 1 as gates harden."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.optim.swa_utils import AveragedModel

import prunus
from prunus.gates import plain_tensors
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()


def attach(model=None, steps=40, **settings):
    settings = {"target_density": 0.3, "select": "all", "mask_scale": "settling", **settings}
    return prunus.ContinuousSparsification(model or seeded(ConvNet), steps=steps, **settings)


def train(cs, steps, lr=0.01):
    optimizer = torch.optim.SGD(cs.param_groups(lr))
    for _ in range(steps):
        (cs.model(x).square().mean() + cs.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        cs.step()
    return cs


@pytest.mark.parametrize("by_torch", [True, False])
def test_the_median_kept_gate_counts_as_one(by_torch, monkeypatch):
    if by_torch:
        monkeypatch.setattr(prunus.gates.native, "takes", lambda *_: False)
    model = nn.Linear(5, 1, bias=False)
    weight = model.weight.detach().clone()
    cs = attach(model, steps=4, target_density=0.5, penalty=0.0)
    assert torch.equal(model.weight, weight)
    with torch.no_grad():
        cs.gates["weight"].score.copy_(torch.tensor([[4.0, 3.0, 2.0, -1.0, -2.0]]))
    for _ in range(3):
        cs.step()
    gate, beta = cs.gates["weight"], cs.temperature
    u = beta * gate.score.detach()
    median = u[u > 0].median()
    assert 1 < 1 / torch.sigmoid(median) < 1.5
    expected = torch.sigmoid(u) / torch.sigmoid(median) * weight
    torch.testing.assert_close(model.weight, expected)
    model.weight.sum().backward()
    # dL/ds = c * beta * m * (1 - m) * w
    m = torch.sigmoid(u)
    torch.testing.assert_close(
        gate.score.grad, beta * m * (1 - m) * weight / torch.sigmoid(median), atol=1e-6, rtol=1e-4
    )


def test_a_kept_weight_counts_as_itself_in_the_binary_network():
    cs = attach(nn.Linear(5, 30, bias=False))
    for steps in (10, 30):  # in the middle of the round, and at its end
        train(cs, steps)
        weight = plain_tensors(cs.model)["weight"].detach().clone()
        with cs.hard():
            assert torch.equal(cs.model.weight, torch.where(cs.mask()["weight"], weight, 0.0))
    assert cs.gates["weight"].settling == 1
    torch.testing.assert_close(cs.model.weight.detach(), cs.gates["weight"].soft_mask() * weight)
    kept = cs.harden()["weight"]
    cs.strip()
    assert torch.equal(cs.model.weight, torch.where(kept, weight, 0.0))


def test_a_further_round_begins_where_the_last_has_ended():
    cs = train(attach(rewind_step=None), 40)
    cs.end_round()
    with cs.hard():
        hard = cs.model(x)
    assert cs.gates["conv1.weight"].settling == 2
    torch.testing.assert_close(cs.model(x), hard)


def test_saved_copied_and_averaged_models_compute_the_same():
    cs = train(attach(), 30)
    other = attach(seeded(ConvNet, 1))
    other.model.load_state_dict(cs.model.state_dict())
    average = AveragedModel(cs.model)
    train(cs, 2)
    average.update_parameters(cs.model)
    assert other.gates["conv1.weight"].settling > cs.gates["conv1.weight"].settling > 1
    other.model.load_state_dict(cs.model.state_dict())
    assert torch.equal(other.model(x), cs.model(x))
    [settled] = {float(b) for name, b in average.named_buffers() if name.endswith("settling")}
    assert settled == cs.gates["conv1.weight"].settling


def test_a_compiled_model_is_compiled_once():
    cs, counter = attach(), CompileCounter()
    compiled = torch.compile(cs.model, backend=counter, fullgraph=True)
    for _ in range(3):
        train(cs, 10)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), cs.model(x))
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_others_have_no_such_buffer():
    cs = attach(mask_scale="init")
    assert not any("settling" in name for name in cs.model.state_dict())


def test_only_scores_that_the_method_moves():
    with pytest.raises(prunus.SettingError, match='leave scores at "method"'):
        attach(scores="optimiser")
