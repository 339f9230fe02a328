"""Small gates are made together at the start of the forward pass; nothing else may change by it."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

import prunus
from prunus.gates import native, together
from support.models import ConvNet, images, seeded


def under_gates(build=ConvNet, **settings):
    cs = prunus.ContinuousSparsification(seeded(build), steps=9, select="all", **settings)
    for gate in cs.gates.values():
        nn.init.normal_(gate.score, generator=torch.Generator().manual_seed(1))
    return cs


def alone(monkeypatch, function):
    with monkeypatch.context() as patch:
        patch.setattr(together, "_SMALL", 0)
        return function()


def gradients(loss_of, **settings):
    cs = under_gates(**settings)
    loss_of(cs)
    return [p.grad for p in cs.model.parameters()]


def equal(some, others):
    return all(
        a is b if a is None or b is None else torch.equal(a, b)
        for a, b in zip(some, others, strict=True)
    )


def count_nodes(tensor):
    seen, todo = set(), [tensor.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [after for after, _ in node.next_functions]
    return sum("SigmoidGates" in type(node).__name__ for node in seen)


def test_one_node_for_all_and_the_same_gradients(monkeypatch):
    def step(cs):
        out = cs.model(images(2, 2, 5, 5)())
        nodes.append(count_nodes(out))
        (out.square().sum() + cs.penalty()).backward()

    nodes = []
    here = gradients(step, penalty=0.01)
    apart = alone(monkeypatch, lambda: gradients(step, penalty=0.01))
    assert nodes == [1, 3] and equal(here, apart)


def test_nothing_is_left_after_the_pass_or_an_error():
    cs = under_gates()
    cs.model(images(2, 2, 5, 5)())
    assert all(gate.made is None for gate in cs.gates.values())
    with pytest.raises(RuntimeError):
        cs.model(torch.ones(1, 1))
    assert all(gate.made is None for gate in cs.gates.values())


def test_without_gradients_each_gate_is_made_when_it_is_used(monkeypatch):
    cs = under_gates()
    monkeypatch.setattr(together, "gate_weights", None)
    with torch.no_grad():
        cs.model(images(2, 2, 5, 5)())


def test_gates_that_are_hard_are_left_alone():
    cs = under_gates()
    x, model = images(2, 2, 5, 5)(), cs.model.eval()
    soft = model(x)
    with prunus.hard(model):
        out = model(x)
    cs.hard_in_eval = True
    assert torch.equal(out, model(x)) and not torch.equal(out, soft)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.unused = (nn.Linear(5, 5) for _ in range(3))

    def forward(self, x):
        return self.a(x).sum(), self.b(x).square().sum()


def test_losses_may_go_backward_one_by_one(monkeypatch):
    def step(cs):
        for loss in cs.model(torch.ones(2, 5)):
            loss.backward()

    here = gradients(step, build=Towers)
    assert equal(here, alone(monkeypatch, lambda: gradients(step, build=Towers)))
    assert sum(g is None for g in here) == 3  # weight, bias and score of what was not used


def test_the_native_core_is_not_needed(monkeypatch):
    monkeypatch.setattr(native, "takes", lambda *_: False)
    assert count_nodes(under_gates().model(images(2, 2, 5, 5)())) == 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant, monkeypatch):
    class Checkpointed(nn.Sequential):
        def forward(self, x):
            for layer in self:
                x = checkpoint(layer, x, use_reentrant=reentrant)
            return x

    def build():
        return Checkpointed(*(nn.Sequential(nn.Linear(5, 5), nn.Tanh()) for _ in range(3)))

    def step(cs):
        cs.model(torch.ones(2, 5, requires_grad=True)).square().sum().backward()

    here = gradients(step, build=build)
    assert equal(here, alone(monkeypatch, lambda: gradients(step, build=build)))


def test_a_copy_makes_its_own_gates():
    cs = under_gates()
    twin = copy.deepcopy(cs.model)
    twin(images(2, 2, 5, 5)()).sum().backward()
    assert all(p.grad is None for p in cs.model.parameters())
    assert all(p.grad is not None for p in twin.parameters())


def test_a_layer_that_is_called_alone_makes_its_own_gate():
    cs = under_gates()
    cs.model.conv1(images(2, 2, 5, 5)()).sum().backward()
    assert cs.gates["conv1.weight"].score.grad is not None
    assert cs.gates["conv2.weight"].score.grad is None


def test_large_gates_are_made_alone(monkeypatch):
    monkeypatch.setattr(together, "_SMALL", 100)
    cs = under_gates()
    large = [g for g in cs.gates.values() if g.score.numel() > 100]
    out = cs.model(images(2, 2, 5, 5)())
    small = len(cs.gates) - len(large)
    assert large and count_nodes(out) == len(large) + (1 if small > 1 else small)


def test_blocks_over_all_outputs_change_nothing_when_they_are_attached():
    model = nn.Linear(4, 8)
    x = torch.randn(2, 4)
    before = model(x)
    prunus.ContinuousSparsification(model, steps=9, select="all", granularity=(8, 1))
    torch.testing.assert_close(model(x), before)


# The property that reads a gated weight


class Doubled(nn.Module):
    def forward(self, w):
        return 2 * w


def test_further_parametrizations_are_applied():
    cs = under_gates()
    before = cs.model.conv1.weight.detach()
    parametrize.register_parametrization(cs.model.conv1, "weight", Doubled())
    assert torch.equal(cs.model.conv1.weight, 2 * before)


def test_what_pytorch_caches_is_made_once():
    cs = under_gates()
    with parametrize.cached():
        assert cs.model.conv1.weight is cs.model.conv1.weight
    assert cs.model.conv1.weight is not cs.model.conv1.weight
