"""Gated models under torch.compile, autocast, channels-last and distributed data parallel."""

import copy

import pytest
import torch
from test_methods import METHODS
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.parallel import DistributedDataParallel

import prunus
from support.models import ConvNet, images, seeded
from support.processes import found_by_two

x = images(4, 2, 6, 6)()


def attach(model, **settings):
    settings = {"mask_init": 0.05, "penalty": 1e-3, "select": "all", **settings}
    cs = prunus.ContinuousSparsification(model, steps=10, final_temperature=50.0, **settings)
    torch.manual_seed(4)
    with torch.no_grad():
        for gate in cs.gates.values():
            gate.score.add_(0.1 * torch.randn_like(gate.score))
    return cs


def gradients(model, cs, network=None):
    model.zero_grad()
    network = model if network is None else network
    (network(x).square().mean() + cs.penalty()).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters()}


# Compilation


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_one_graph_for_all_temperatures_with_the_gradients_of_eager(backend):
    torch._dynamo.reset()
    model = seeded(ConvNet)
    cs = attach(model)
    eager = copy.deepcopy(cs)
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for _ in range(4):
        ours, theirs = gradients(model, cs, compiled), gradients(eager.model, eager)
        for name, gradient in theirs.items():
            torch.testing.assert_close(ours[name], gradient, atol=1e-5, rtol=1e-3)
        cs.step()
        eager.step()
    assert cs.temperature > 4
    assert counter.frame_count == 1

    with cs.hard(), eager.hard(), torch.no_grad():
        hard = eager.model.eval()(x)
        model.eval()
        torch.testing.assert_close(compiled(x), hard)
        before = counter.frame_count
        compiled(x)
        assert counter.frame_count == before
    with torch.no_grad():
        soft = eager.model(x)
        torch.testing.assert_close(compiled(x), soft)
    assert not torch.allclose(soft, hard)


# Precision and memory format


@pytest.mark.parametrize("name", METHODS)
def test_every_method_compiles_to_one_graph_also_in_channels_last(name):
    model = seeded(ConvNet).to(memory_format=torch.channels_last)
    method = METHODS[name](model)
    batch = images(4, 2, 5, 5)().to(memory_format=torch.channels_last)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.manual_seed(0)  # for gates that draw
        eager = model(batch)
        torch.manual_seed(0)
        assert torch.allclose(compiled(batch), eager, atol=1e-6)
        method.step()
    torch._dynamo.reset()


def test_scores_and_gates_are_float32_under_autocast():
    model = seeded(ConvNet)
    cs = attach(model)
    reference = gradients(model, cs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.conv1.weight.dtype == torch.float32
        output = model(x)
        assert output.dtype == torch.bfloat16
        penalty = cs.penalty()
    assert penalty.dtype == torch.float32
    model.zero_grad()
    (output.float().square().mean() + penalty).backward()
    for gate in cs.gates.values():
        assert gate.score.dtype == gate.score.grad.dtype == torch.float32
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, reference[name], atol=3e-2, rtol=0.1)
    with cs.hard(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.conv1.weight.dtype == torch.float32


# Scores of blocks can have five axes, which PyTorch refuses to convert: those convert before.
@pytest.mark.parametrize(
    ("when", "granularity"),
    [(w, g) for w in ("before", "after") for g in ("weight", "kernel", "filter")]
    + [("before", (2, 2)), ("before", (2, 1))],
    ids=str,
)
def test_channels_last(when, granularity):
    settings = {"granularity": granularity, "select": "paper"}
    plain, model = seeded(ConvNet), seeded(ConvNet)
    expected_cs = attach(plain, **settings)
    expected = gradients(plain, expected_cs)
    if when == "before":
        model.to(memory_format=torch.channels_last)
    cs = attach(model, **settings)
    with torch.no_grad():
        for name, gate in cs.gates.items():
            gate.score.copy_(expected_cs.gates[name].score)
    if when == "after":
        model.to(memory_format=torch.channels_last)
    assert model.conv1.weight.is_contiguous(memory_format=torch.channels_last)
    actual = gradients(model, cs)
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, atol=1e-5, rtol=1e-4)
    assert cs.mask() == expected_cs.mask()
    cs.harden()
    output = model.eval()(x)
    cs.strip()
    assert torch.equal(model(x), output)


# Distributed data parallel


def one_round(name):
    method = METHODS[name](seeded(ConvNet))
    ddp = DistributedDataParallel(method.model)
    optimizer = torch.optim.SGD(method.param_groups(0.1), momentum=0.9)
    for _ in range(6):
        (ddp(torch.randn(4, 2, 5, 5)).square().mean() + method.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        method.step()
    return method.end_round()


class EitherOr(nn.Module):
    """Which of two layers is used depends on the data."""

    def __init__(self):
        super().__init__()
        self.gated, self.other = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x, gated):
        return self.gated(x) if gated else self.other(x)


def a_round_with_gates_in_one_process_only(rank):
    torch.manual_seed(0)
    model = EitherOr()
    cs = prunus.ContinuousSparsification(
        model, steps=4, select="gated.weight", target_density=0.5, rewind_step=None
    )
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    for _ in range(4):
        ddp(torch.randn(4, 8), rank == 0).square().mean().backward()
        cs.step()
    return cs.mask()


def worker(rank):
    torch.manual_seed(rank)  # other data, and other weights until DDP broadcasts them
    model = ConvNet()
    cs = prunus.ContinuousSparsification(
        model, steps=6, select="all", penalty=1e-4, mask_init=0.02, rewind_step=2
    )
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(cs.param_groups(0.1, score_lr=1.0), momentum=0.9)
    masks = []
    for _ in range(2):
        for _ in range(6):
            batch = torch.randn(4, 2, 5, 5)
            (ddp(batch).square().mean() + cs.penalty()).backward()
            optimizer.step()
            optimizer.zero_grad()
            cs.step()
        masks.append(dict(cs.end_round()))
    masks += [dict(one_round(name)) for name in METHODS if name != "amc"]
    masks.append(dict(a_round_with_gates_in_one_process_only(rank)))
    try:
        attached_to_ddp = prunus.ContinuousSparsification(ddp, steps=1).name
    except prunus.AttachError as error:
        attached_to_ddp = str(error)
    weights = {n: t.detach().clone() for n, t in cs.ticket().weights.items() if "bn" not in n}
    return (masks, weights, attached_to_ddp)


def test_two_processes_find_the_same_masks():
    one, two = found_by_two(worker)
    for ours, theirs in zip(one[0], two[0], strict=True):
        first, second = prunus.Mask(ours), prunus.Mask(theirs)
        assert first == second
        assert 0 < first.density < 1
    assert len(one[0]) == 2 + len(METHODS) - 1 + 1
    assert all(torch.equal(one[1][n], two[1][n]) for n in one[1])
    assert "wrapped already" in one[2]
