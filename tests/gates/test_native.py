"""The sigmoid gate in the native core: what PyTorch's operations compute, to the bit."""

import copy
import ctypes
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import prunus
from prunus.gates import Layout, SigmoidGate, native
from prunus_runtime import native as core
from support.models import ConvNet, images, seeded

pytestmark = pytest.mark.skipif(not core.available(), reason=str(core.why_not()))

SIZES = [1, 31, 64, 8192, 8192 * 3 + 5, 256 * 8192 + 1]


def gate_of(size, beta=1.7, scale=2.0, penalised=True):
    torch.manual_seed(size)
    w = nn.Parameter(torch.randn(size))
    gate = SigmoidGate(w, Layout((size,), (size,), (size,)), 0.0, scale, penalised)
    with torch.no_grad():
        gate.score.normal_(0, 4)
        gate.score[0] = -torch.inf  # as scores that a round removed
    gate.temperature.fill_(beta)
    return w, gate


def computed(w, gate, g, penalty=0.3):
    """Output, sum, and both gradients."""
    w.grad = gate.score.grad = None
    out = gate(w)
    l1 = gate.l1()
    ((out * g).sum() + penalty * l1).backward()
    return out.detach(), l1.detach(), w.grad, gate.score.grad


def by_torch(monkeypatch, function, *arguments):
    with monkeypatch.context() as patch:
        patch.setattr(native, "takes", lambda *_: False)
        return function(*arguments)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_both_passes_equal_the_operations_of_pytorch(size, threads, monkeypatch):
    w, gate = gate_of(size)
    g = torch.randn(size)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert native.takes(w, gate.score)
        ours = computed(w, gate, g)
    finally:
        torch.set_num_threads(before)
    theirs = by_torch(monkeypatch, computed, w, gate, g)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    # PyTorch computes the last few numbers of a tensor one by one, with another exponential.
    if core.instruction_set() != "portable" and size >= 64:
        whole = size // 64 * 64
        for mine, other in zip(ours, theirs, strict=True):
            if mine.dim():
                assert torch.equal(mine[:whole], other[:whole])


def test_what_is_not_finite_stays_as_it_is_in_pytorch(monkeypatch):
    w, gate = gate_of(64)
    with torch.no_grad():
        gate.score[1:4] = torch.tensor([torch.inf, torch.nan, -1e30])
        w[4:6] = torch.tensor([torch.inf, torch.nan])
    g = torch.ones(64)
    ours, theirs = computed(w, gate, g), by_torch(monkeypatch, computed, w, gate, g)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, equal_nan=True, rtol=1e-5, atol=1e-6)


def test_the_sum_alone(monkeypatch):
    _, gate = gate_of(20_000)

    def alone():
        gate.score.grad = None
        l1 = gate.l1()  # no forward pass
        (0.5 * l1).backward()
        return l1.detach(), gate.score.grad

    for mine, other in zip(alone(), by_torch(monkeypatch, alone), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-7)


def test_moving_scores_leaves_out_what_is_not_finite(monkeypatch):
    _, gate = gate_of(100)
    gradient = torch.randn(100)
    gradient[5:8] = torch.tensor([torch.inf, -torch.inf, torch.nan])
    twin, before, version = copy.deepcopy(gate), gate.score.detach().clone(), gate.score._version
    with torch.no_grad():
        gate.move(gradient, 3.0)
        by_torch(monkeypatch, twin.move, gradient, 3.0)
    assert torch.equal(gate.score, twin.score)
    assert torch.equal(gate.score[5:8], before[5:8]) and not torch.equal(gate.score, before)
    assert gate.score._version > version  # or a sum of the old scores would be taken for the new


def test_a_gradient_in_another_order_of_memory():
    w, gate = gate_of(48)
    gate.layout = Layout((4, 12), (4, 12), (4, 12))
    w.data, gate.score.data = w.data.view(4, 12), gate.score.data.view(4, 12)
    g = torch.randn(12, 4).t()
    grads = torch.autograd.grad(gate(w), [w, gate.score], g)
    again = torch.autograd.grad(gate(w), [w, gate.score], g.contiguous())
    assert all(torch.equal(a, b) for a, b in zip(grads, again, strict=True))
    expanded = torch.autograd.grad(gate(w).sum(), [w])[0]
    assert torch.equal(expanded, torch.autograd.grad(gate(w), [w], torch.ones(4, 12))[0])


def test_what_it_takes():
    w = torch.randn(4, 3, 2, 2)
    last = w.to(memory_format=torch.channels_last)
    assert native.takes(w, nn.Parameter(w)) and native.takes(last, last.clone())
    assert not native.takes(w, last)  # not the same order
    assert not native.takes(torch.randn(8, 4), torch.randn(1, 4))  # same strides, fewer numbers
    assert not native.takes(w[:, ::2])
    assert not native.takes(torch.zeros(1).expand(4))
    assert not native.takes(w.double()) and not native.takes(w.bfloat16())
    assert not native.takes(w.to("meta"))
    assert not native.takes(w.as_subclass(type("Subclass", (torch.Tensor,), {})))


def test_without_openmp_it_works_alone_or_not_at_all(monkeypatch):
    found = native._core()
    monkeypatch.setattr(native, "_core", lambda: found._replace(parallel=None))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    w, gate = gate_of(100_000)
    assert native.takes(w) and gate(w).isfinite().all()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert not native.takes(w)


WITHOUT = """
import torch, prunus
from prunus.gates import native
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
cs = prunus.ContinuousSparsification(model, steps=2, select="all")
(model(torch.ones(1, 4)).sum() + cs.penalty()).backward()
assert not native.takes(torch.zeros(4))
"""


def test_without_a_native_core_gates_work():
    environment = {**os.environ, "PRUNUS_NATIVE": "/nowhere/_native.so"}
    subprocess.run([sys.executable, "-c", WITHOUT], check=True, env=environment)


def test_all_instruction_sets_agree(monkeypatch):
    w, gate = gate_of(8192 + 17)
    g = torch.randn_like(w)
    theirs = by_torch(monkeypatch, computed, w, gate, g)
    found = native._core()
    for isa in core.ISAS:
        if core.lanes(isa):
            monkeypatch.setenv("PRUNUS_ISA", isa)
            other = found._replace(passes=core.gate_passes())
            monkeypatch.setattr(native, "_core", lambda other=other: other)
            for mine, reference in zip(computed(w, gate, g), theirs, strict=True):
                torch.testing.assert_close(mine, reference, rtol=2e-5, atol=1e-6)


def test_the_structure_is_the_one_that_was_compiled():
    assert ctypes.sizeof(core.Gate) == 6 * 8 + 4 * 4 + 8


def test_a_model_trains_the_same_way(monkeypatch):
    def scores(build):
        model = build()
        cs = prunus.ContinuousSparsification(model, steps=8, select="all", target_density=0.5)
        optimizer = torch.optim.SGD(cs.param_groups(0.1), momentum=0.9)
        for _ in range(4):
            (model(images(4, 2, 5, 5)()).square().mean() + cs.penalty()).backward()
            optimizer.step()
            optimizer.zero_grad()
            cs.step()
        return {name: gate.score.detach() for name, gate in cs.gates.items()}

    ours = scores(lambda: seeded(ConvNet))
    theirs = by_torch(monkeypatch, scores, lambda: seeded(ConvNet))
    for name, score in ours.items():
        torch.testing.assert_close(score, theirs[name], rtol=1e-3, atol=1e-4)


# In a compiled model the sum of the penalty comes out of its forward pass too.


def after_forward(model, cs, x):
    (model(x).square().mean() + cs.penalty()).backward()


def after_the_backward_pass(model, cs, x):
    model(x).square().mean().backward()
    cs.penalty().backward()


def with_regularize(model, cs, x):
    model(x).square().mean().backward()
    cs.regularize()


def with_scores_that_have_changed(model, cs, x):
    model(x)
    with torch.no_grad():
        for gate in cs.gates.values():
            gate.score.add_(0.1)
    (cs.penalty() + model(x).square().mean()).backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    ("order", "again"),
    [
        (after_forward, False),
        (after_the_backward_pass, True),
        (with_regularize, True),
        (with_scores_that_have_changed, True),
    ],
)
def test_penalty_of_a_compiled_model(order, again, backend, monkeypatch):
    torch._dynamo.reset()
    x = images(4, 2, 5, 5)()
    cs = prunus.ContinuousSparsification(seeded(ConvNet), steps=9, penalty=0.01, select="all")
    twin = copy.deepcopy(cs)
    compiled = torch.compile(cs.model, backend=backend, fullgraph=True)
    order(compiled, cs, x)
    order(twin.model, twin, x)
    cs.model.zero_grad()
    twin.model.zero_grad()
    passes = []
    run = native._run
    monkeypatch.setattr(native, "_run", lambda n, *a, **k: (passes.append(n), run(n, *a, **k))[1])
    order(compiled, cs, x)
    assert (native._L1 in passes) == (again or backend == "eager")
    order(twin.model, twin, x)
    for mine, other in zip(cs.model.parameters(), twin.model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-6)
