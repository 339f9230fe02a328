"""Gates that learn masks, factors and thresholds: what they compute, and their exact gradients."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_methods import METHODS
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import prunus
from prunus.gates import (
    BernoulliGate,
    HardConcreteGate,
    ScalingGate,
    SoftThresholdGate,
    TopKGate,
)
from prunus.gates.hard_concrete import BETA, GAMMA, ZETA, _hard_concrete
from prunus.gates.soft_threshold import _soft_threshold
from prunus.gates.straight_through import straight_through
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()
LEARNED = ["iss", "netslim", "l0", "l0 expected", "str", "dnw"]
INF = math.inf


def weights(*values, dtype=torch.float32):
    return nn.Parameter(torch.tensor(values, dtype=dtype))


# Straight through


def test_straight_through_is_exact_forward_and_the_identity_backward():
    to = weights(0.3, -2.0, 1e8)
    value = torch.tensor([1.0, 0.0, 1.0])
    out = straight_through(value, to)
    assert torch.equal(out, value)
    g = torch.tensor([0.1, -3.0, 7.0])
    out.backward(g)
    assert torch.equal(to.grad, g)


# Bernoulli


def bernoulli(w, *scores):
    gate = BernoulliGate(w, 0.0)
    with torch.no_grad():
        gate.score.copy_(torch.tensor(scores))
    return gate


def test_bernoulli_gradients_by_hand():
    w = weights(2.0, -3.0, 5.0, 7.0)
    s = math.log(3)  # sigmoid(s) = 3/4, sigmoid'(s) = 3/16
    gate = bernoulli(w, s, s, -s, s)
    torch.manual_seed(0)
    out = gate(w)
    m = (out != 0).float()
    assert set(m.tolist()) == {0.0, 1.0}, "the seed shows both cases"
    assert torch.equal(out, m * w)
    g = torch.tensor([1.0, 10.0, -1.0, 0.5])
    out.backward(g)
    assert torch.equal(w.grad, m * g)
    # dL/dm * sigmoid'(s), dL/dm = g * w, whether m is 0 or 1
    torch.testing.assert_close(gate.score.grad, 3 / 16 * torch.tensor([2.0, -30.0, -5.0, 3.5]))


def test_a_score_of_minus_infinity_is_removed_for_good():
    w = weights(2.0, 3.0)
    gate = bernoulli(w, -INF, 100.0)
    for _ in range(50):
        assert gate(w).tolist() == [0.0, 3.0]
    (gate(w).sum() + gate.soft_mask().sum()).backward()
    assert gate.score.grad[0].item() == 0.0
    assert w.grad.tolist() == [0.0, 1.0]
    gate.score.data.sub_(gate.score.grad, alpha=20.0)
    assert gate.score[0].item() == -INF
    assert not gate.sample(torch.Generator().manual_seed(0))[0]


def test_bernoulli_frequencies():
    w = nn.Parameter(torch.ones(4, 20_000))
    gate = BernoulliGate(w, 0.0)
    p = torch.tensor([0.1, 0.5, 0.73, 0.99])
    with torch.no_grad():
        gate.score.copy_(p.logit()[:, None])
    torch.manual_seed(0)
    drawn = gate(w).mean(1)
    committed = gate.sample(torch.Generator().manual_seed(0)).float().mean(1)
    for kept in (drawn, committed):  # four standard deviations are at most 0.0142
        torch.testing.assert_close(kept, p, atol=0.0142, rtol=0)


def test_in_evaluation_mode_the_most_probable_mask_counts():
    w = weights(2.0, 3.0, 4.0)
    gate = bernoulli(w, 1e-20, 0.0, -1.0).eval()
    assert gate.mask().tolist() == [True, False, False]
    for _ in range(9):
        assert gate(w).tolist() == [2.0, 0.0, 0.0]
    gate.train().hard = True
    assert gate(w).tolist() == [2.0, 0.0, 0.0]


def test_float16_autocast_is_refused():
    model = seeded(ConvNet)
    METHODS["iss"](model)
    with (
        torch.autocast("cpu", dtype=torch.float16),
        pytest.raises(prunus.SettingError, match=r"float16.*bf16"),
    ):
        model(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(x)


# Scaling


def test_scaling_by_hand():
    w = weights(2.0, -3.0)
    gate = ScalingGate(w, 1.0)
    assert torch.equal(gate(w), w)
    with torch.no_grad():
        gate.scaling.copy_(torch.tensor([0.5, -2.0]))
    out = gate(w)
    assert out.tolist() == [1.0, 6.0]
    out.backward(torch.tensor([1.0, 10.0]))
    assert w.grad.tolist() == [0.5, -20.0]
    assert gate.scaling.grad.tolist() == [2.0, -30.0]
    with torch.no_grad():
        gate.fold(w)
    assert w.tolist() == [1.0, 6.0] and gate.scaling.tolist() == [1.0, 1.0]


def test_scaling_gradcheck():
    torch.manual_seed(0)
    w = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    gate = ScalingGate(w, 0.7)
    assert torch.autograd.gradcheck(
        lambda w, g: torch.func.functional_call(gate, {"scaling": g}, (w,)), (w, gate.scaling)
    )


# Hard concrete


def naive_z(log_alpha, u):
    s = torch.sigmoid((torch.log(u) - torch.log(1 - u) + log_alpha) / BETA)
    return torch.clamp(s * (ZETA - GAMMA) + GAMMA, 0, 1)


def test_hard_concrete_gradients_by_hand():
    # logit(u) + log_alpha = 0: s = 1/2, z = 0.5, dz/dlog_alpha = 1.2 * 1.5 * 1/4 = 0.45
    # and far to either side z is clamped: no gradient for log_alpha
    w = weights(2.0, 3.0, 5.0)
    log_alpha = weights(0.5, 9.0, -9.0)
    noise = torch.tensor([-0.5, 0.0, 0.0])
    out = _hard_concrete(w, log_alpha, noise)
    torch.testing.assert_close(out, torch.tensor([1.0, 3.0, 0.0]))
    assert out[2].item() == 0.0
    out.backward(torch.tensor([10.0, 1.0, 1.0]))
    torch.testing.assert_close(w.grad, torch.tensor([5.0, 1.0, 0.0]))
    torch.testing.assert_close(log_alpha.grad, torch.tensor([10 * 2 * 0.45, 0.0, 0.0]))


def test_hard_concrete_gradcheck():
    torch.manual_seed(0)
    w = torch.randn(40, dtype=torch.float64, requires_grad=True)
    log_alpha = torch.randn(40, dtype=torch.float64, requires_grad=True)
    noise = torch.rand(40, dtype=torch.float64).logit()
    stretched = torch.sigmoid((noise + log_alpha) / BETA) * (ZETA - GAMMA) + GAMMA
    z = stretched.clamp(0, 1)
    assert (z == 0).any() and (z == 1).any() and ((z > 0) & (z < 1)).any()
    assert torch.minimum(stretched.abs(), (stretched - 1).abs()).min() > 1e-4, "off the kinks"
    assert torch.autograd.gradcheck(lambda w, a: _hard_concrete(w, a, noise), (w, log_alpha))
    torch.testing.assert_close(
        _hard_concrete(w, log_alpha, noise), naive_z(log_alpha, noise.sigmoid()) * w
    )


def test_hard_concrete_is_finite_at_the_ends():
    w = nn.Parameter(torch.ones(4))
    log_alpha = weights(60.0, -60.0, 0.0, 0.0)
    u = torch.tensor([0.0, 1.0, 0.0, 1.0])
    out = _hard_concrete(w, log_alpha, u.logit(1e-6))
    out.sum().backward()
    assert out.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert log_alpha.grad.isfinite().all() and w.grad.isfinite().all()


@pytest.mark.parametrize("log_alpha", [-3.0, -1.0, 0.0, 2.0])
def test_the_expected_l0_is_how_often_a_gate_is_open(log_alpha):
    w = nn.Parameter(torch.ones(40_000))
    gate = HardConcreteGate(w, 0.5)
    with torch.no_grad():
        gate.log_alpha.fill_(log_alpha)
    torch.manual_seed(0)
    expected = 1 / (1 + math.exp(-(log_alpha - BETA * math.log(-GAMMA / ZETA))))
    assert gate.soft_mask()[0].item() == pytest.approx(expected)
    committed = gate.sample(torch.Generator().manual_seed(0))
    for z in (gate(w).detach(), committed):  # four standard deviations are at most 0.01
        assert (z > 0).float().mean().item() == pytest.approx(expected, abs=0.01)
        assert z.min() >= 0 and z.max() <= 1


def test_before_a_round_commits_the_expected_rule_counts():
    w = weights(2.0, 3.0, 4.0)
    gate = HardConcreteGate(w, 0.5)
    assert gate.log_alpha.tolist() == [0.0] * 3
    with torch.no_grad():  # sigmoid(log_alpha) = 1/2, 1/13 < 1/12, 12/13 > 11/12
        gate.log_alpha.copy_(torch.tensor([0.0, -math.log(12), math.log(12)]))
    gate.eval()
    torch.testing.assert_close(gate(w), torch.tensor([1.0, 0.0, 4.0]))
    assert gate.mask().tolist() == [True, False, True]
    gate.hard = True
    torch.testing.assert_close(gate(w), torch.tensor([1.0, 0.0, 4.0]))
    gate.round_mask = torch.tensor([True, True, False])
    gate.committed.copy_(torch.tensor([0.25, 1.0, 0.0]))
    assert gate(w).tolist() == [0.5, 3.0, 0.0]


# Soft threshold


def test_soft_threshold_by_hand():
    w = weights(1.0, -2.0, 0.3, 0.5, -0.25)
    gate = SoftThresholdGate(w, 0.0)  # a threshold of 1/2, sigmoid'(0) = 1/4
    out = gate(w)
    assert out.tolist() == [0.5, -1.5, 0.0, 0.0, 0.0]
    out.backward(torch.tensor([1.0, 10.0, 100.0, 100.0, 100.0]))
    assert w.grad.tolist() == [1.0, 10.0, 0.0, 0.0, 0.0]
    assert gate.score.grad.item() == pytest.approx(-(1 - 10) / 4)
    gate.observe(w)
    assert gate.mask().tolist() == [True, True, False, False, False]
    with torch.no_grad():
        gate.fold(w)
    assert w.tolist() == [0.5, -1.5, 0.0, 0.0, 0.0]
    assert gate.threshold.item() == 0.0
    assert torch.equal(gate(w), w)


def test_soft_threshold_gradcheck():
    torch.manual_seed(0)
    w = torch.randn(30, dtype=torch.float64, requires_grad=True)
    s = torch.tensor(-0.3, dtype=torch.float64, requires_grad=True)
    assert (w.abs() - s.sigmoid()).abs().min() > 1e-4, "off the kinks"
    assert torch.autograd.gradcheck(lambda w, s: _soft_threshold(w, s.sigmoid()), (w, s))


@settings(max_examples=60)
@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=20),
    st.floats(-40, 10, width=32),
)
def test_soft_threshold_equals_the_formula_and_its_mask(values, s):
    w = weights(*values)
    gate = SoftThresholdGate(w, s)
    out, threshold = gate(w), torch.sigmoid(torch.tensor(s))
    torch.testing.assert_close(out, w.sign() * torch.relu(w.abs() - threshold))
    gate.observe(w)
    assert torch.equal(out != 0, gate.mask())


# Top-k


def test_top_k_passes_the_gradient_to_all():
    w = weights(1.0, math.nan, 3.0)
    gate = TopKGate(w)
    gate.top.copy_(torch.tensor([True, False, False]))
    out = gate(w)
    assert out.tolist() == [1.0, 0.0, 0.0]
    g = torch.tensor([1.0, 2.0, 3.0])
    out.backward(g)
    assert torch.equal(w.grad, g)
    w.grad = None
    gate.hard = True
    gate(w).backward(g)
    assert w.grad.tolist() == [1.0, 0.0, 0.0], "once the search is over, removed is removed"


# All of them


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "make",
    [
        lambda w: BernoulliGate(w, 0.0),
        lambda w: ScalingGate(w, 0.5),
        lambda w: HardConcreteGate(w, 0.5),
        lambda w: SoftThresholdGate(w, -1.0),
        TopKGate,
    ],
)
def test_half_precision_weights_have_float32_scores(make, dtype):
    torch.manual_seed(0)
    w = nn.Parameter(torch.randn(4, 3).to(dtype))
    gate = make(w)
    out = gate(w)
    assert out.dtype == dtype
    out.float().sum().backward()
    assert w.grad.dtype == dtype
    for parameter in gate.parameters():
        assert parameter.dtype == parameter.grad.dtype == torch.float32
    gate.hard = True
    assert gate(w).dtype == gate.eval()(w).dtype == dtype


@pytest.mark.parametrize("name", LEARNED)
def test_a_model_attached_in_evaluation_mode_is_deterministic(name):
    model = seeded(ConvNet).eval()
    METHODS[name](model)
    assert torch.equal(model(x), model(x))


@pytest.mark.parametrize("name", LEARNED)
def test_channels_last(name):
    model, plain = seeded(ConvNet), seeded(ConvNet)
    model.to(memory_format=torch.channels_last)
    method, expected = METHODS[name](model), METHODS[name](plain)
    assert model.conv1.weight.is_contiguous(memory_format=torch.channels_last)
    assert method.harden() == expected.harden()
    torch.testing.assert_close(model.eval()(x), plain.eval()(x))


@pytest.mark.parametrize("name", LEARNED)
def test_one_graph_with_the_gradients_of_eager(name):
    torch._dynamo.reset()
    model = seeded(ConvNet)
    method = METHODS[name](model)
    # Compiled code draws other numbers: compare where nothing is left to chance.
    with torch.no_grad():
        for gate in method.gates.values():
            if name == "iss":
                gate.score.copy_(torch.where(gate.score.normal_() > 0, 30.0, -30.0))
            elif name.startswith("l0"):
                gate.log_alpha.copy_(torch.where(gate.log_alpha.normal_() > 0, 30.0, -30.0))
    eager = copy.deepcopy(method)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for _ in range(3):
        for network, ours in ((compiled, method), (eager.model, eager)):
            ours.model.zero_grad()
            (network(x).square().mean() + ours.penalty()).backward()
        for (n, p), q in zip(model.named_parameters(), eager.model.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, atol=1e-6, rtol=1e-4, msg=n)
        method.step()
        eager.step()
    assert counter.frame_count == 1
