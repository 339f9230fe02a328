"""Gates: their mathematics, what they keep in memory, and the penalty that rides on them."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import prunus
from prunus.gates import FixedGate, Layout, SigmoidGate, layout
from support.models import ConvNet, TiedTransformer, images, seeded, tokens

GRANULARITIES = ["weight", "kernel", "filter", (2, 1), (2, 3)]


def gate_for(weight, mask_init=0.0, scale=1.0, granularity="weight", penalised=True):
    module = nn.Conv2d(1, 1, 1)
    module.weight = weight
    [candidate] = [c for c in prunus.candidates(module) if c.name == "weight"]
    return SigmoidGate(weight, layout(candidate, granularity), mask_init, scale, penalised)


def soft(gate):
    """The naive soft mask, in the shape of the weight."""
    m = torch.sigmoid(gate.score * gate.temperature)
    return m.expand(gate.layout.view).reshape(gate.layout.weight)


# Mathematics


def four_weights(scale=1.0):
    w = nn.Parameter(torch.tensor([1.0, -2.0, 3.0, 4.0]))
    gate = SigmoidGate(w, Layout((4,), (4,), (4,)), 0.0, scale, penalised=True)
    with torch.no_grad():
        gate.score.copy_(torch.tensor([0.0, math.log(3) / 2, -math.log(3) / 2, 0.0]))
    gate.temperature.fill_(2.0)
    return w, gate  # sigmoid(beta*s) = 1/2, 3/4, 1/4, 1/2


@pytest.mark.parametrize("score", [-60.0, -87.0, -95.0, -200.0, -torch.inf])
def test_gates_that_are_as_good_as_closed_make_no_denormal_numbers(score):
    # A convolution with those takes thirty times as long on a CPU.
    w = nn.Parameter(torch.tensor([1.0, 1e-3]))
    gate = SigmoidGate(w, Layout((2,), (2,), (2,)), 0.0, 1.0, penalised=True)
    with torch.no_grad():
        gate.score.fill_(score)
    (gate(w).sum() + gate.l1()).backward()
    assert not gate(w).any() and not gate.soft_mask().any()
    assert not w.grad.any() and not gate.score.grad.any()
    with torch.no_grad():
        gate.score.fill_(-35.0)
    assert (gate(w) > 0).all()


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_four_weights_by_hand(scale):
    w, gate = four_weights(scale)
    out = gate(w)
    torch.testing.assert_close(out, scale * torch.tensor([0.5, -1.5, 0.75, 2.0]))
    out.backward(torch.tensor([1.0, 1.0, 2.0, 0.0]))
    torch.testing.assert_close(w.grad, scale * torch.tensor([0.5, 0.75, 0.5, 0.0]))
    # beta * m * (1 - m) * w * g = 2*1/4*1*1, 2*3/16*-2*1, 2*3/16*3*2, 0
    expected = torch.tensor([0.5, -0.75, 2.25, 0.0])
    torch.testing.assert_close(gate.score.grad, scale * expected)


def test_l1_of_four_weights_by_hand():
    w, gate = four_weights(scale=2.0)
    gate(w)
    l1 = gate.l1()
    torch.testing.assert_close(l1, torch.tensor(2.0))  # of the soft mask: without the scale
    l1.backward()
    torch.testing.assert_close(gate.score.grad, torch.tensor([0.5, 0.375, 0.375, 0.5]))
    assert w.grad is None or not w.grad.any()


def test_the_mask_is_the_sign_of_the_score_and_zero_is_removed():
    w, gate = four_weights()
    assert gate.mask().tolist() == [False, True, False, False]
    with torch.no_grad():
        gate.score.copy_(torch.tensor([1e-30, -1e-30, 1e30, -1e30]))
    assert gate.mask().tolist() == [True, False, True, False]
    gate.hard = True
    assert gate(w).tolist() == [1.0, 0.0, 3.0, 0.0]


@pytest.mark.parametrize("scale", [1.0, 3.5])
@pytest.mark.parametrize("granularity", GRANULARITIES, ids=str)
def test_gradcheck(granularity, scale):
    torch.manual_seed(0)
    w = nn.Parameter(torch.randn(4, 3, 2, 2, dtype=torch.float64))
    gate = gate_for(w, 0.3, scale, granularity)
    assert gate.score.dtype == torch.float64
    nn.init.normal_(gate.score)
    gate.temperature.fill_(1.7)

    def function(w, s):
        v = w.view(gate.layout.view)
        tensors = (v, s, gate.temperature)
        return prunus.gates.passes.SigmoidGates.apply([(scale, True, gate)], *tensors)

    assert torch.autograd.gradcheck(function, (w, gate.score))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("granularity", GRANULARITIES, ids=str)
def test_forward_and_backward_equal_the_naive_formula(granularity, transposed):
    torch.manual_seed(0)
    cls = nn.ConvTranspose2d if transposed else nn.Conv2d
    module = cls(6, 4, 3) if not transposed else cls(6, 8, 3, groups=2)
    w = module.weight
    [candidate] = [c for c in prunus.candidates(module) if c.name == "weight"]
    gate = SigmoidGate(w, layout(candidate, granularity), 0.1, 2.0, penalised=True)
    nn.init.normal_(gate.score)
    gate.temperature.fill_(3.0)
    g = torch.randn_like(w)
    naive = 2.0 * soft(gate) * w
    expected = torch.autograd.grad((naive * g).sum() + 0.3 * soft(gate).sum(), [w, gate.score])
    out = gate(w)
    torch.testing.assert_close(out, naive)
    actual = torch.autograd.grad((out * g).sum() + 0.3 * gate.l1(), [w, gate.score])
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_of_half_precision_weights_are_float32(dtype):
    w = nn.Parameter(torch.randn(4, 3, 2, 2).to(dtype))
    gate = gate_for(w, 0.1, 2.0)
    assert gate.score.dtype == gate.temperature.dtype == torch.float32
    out = gate(w)
    assert out.dtype == dtype
    (out.float().sum() + gate.l1()).backward()
    assert w.grad.dtype == dtype
    assert gate.score.grad.dtype == torch.float32
    gate.hard = True
    assert gate(w).dtype == dtype


def test_fixed_gate_is_exact_whatever_the_removed_weights_hold():
    w = nn.Parameter(torch.tensor([1.0, float("nan"), float("inf"), -4.0]))
    gate = FixedGate(torch.tensor([True, False, False, True]))
    out = gate(w)
    assert out.tolist() == [1.0, 0.0, 0.0, -4.0]
    out.sum().backward()
    assert w.grad.tolist() == [1.0, 0.0, 0.0, 1.0]


# Memory


@pytest.mark.parametrize("granularity", ["weight", "filter", (2, 1)], ids=str)
@pytest.mark.parametrize("penalised", [False, True])
def test_nothing_is_saved_for_backward(granularity, penalised):
    w = nn.Parameter(torch.randn(4, 3, 2, 2))
    gate = gate_for(w, 0.1, 2.0, granularity, penalised)
    saved = []
    with saved_tensors_hooks(lambda t: (saved.append(t), t)[1], lambda t: t):
        gate(w)
    assert not saved


# The penalty, in every order

LAMBDA = 0.01


def naive_gradients(model, batches, penalties):
    """Gradients of a loss per batch and that many penalties, by the formula written plainly."""
    leaves, weights = {}, {}
    for name, (gate, w) in prunus.gates.gated_parameters(model).items():
        s = gate.score.detach().clone().requires_grad_()
        v = w.detach().clone().requires_grad_()
        m = torch.sigmoid(s * gate.temperature)
        m = m.expand(gate.layout.view).reshape(gate.layout.weight)
        leaves[name] = (v, s, m)
        weights[name] = gate.scale * m * v
    total = LAMBDA * penalties * sum(m.sum() for _, _, m in leaves.values())
    plain = prunus.remove(copy.deepcopy(model))
    for batch in batches:
        total = total + loss(torch.func.functional_call(plain, weights, batch))
    total.backward()
    return {n: (v.grad, s.grad) for n, (v, s, _) in leaves.items()}


def loss(output):
    return output.square().mean()


ORDERS = {}


def order(batches, penalties):
    def register(function):
        ORDERS[function.__name__] = (function, batches, penalties)
        return function

    return register


@order(1, 1)
def after_forward(model, cs, x):
    (loss(model(x[0])) + cs.penalty()).backward()


@order(1, 1)
def before_forward(model, cs, x):
    penalty = cs.penalty()
    (penalty + loss(model(x[0]))).backward()


@order(1, 2)
def twice(model, cs, x):
    (loss(model(x[0])) + cs.penalty() + cs.penalty()).backward()


@order(2, 2)
def accumulation(model, cs, x):
    for batch in x:
        (loss(model(batch)) + cs.penalty()).backward()


@order(2, 1)
def accumulation_with_one_penalty(model, cs, x):
    loss(model(x[0])).backward()
    (loss(model(x[1])) + cs.penalty()).backward()


@order(2, 1)
def two_forwards_then_one_backward(model, cs, x):
    (loss(model(x[0])) + loss(model(x[1])) + cs.penalty()).backward()


@order(1, 1)
def an_unused_forward_in_between(model, cs, x):
    value = loss(model(x[0]))
    model(x[1])
    (value + cs.penalty()).backward()


@order(1, 1)
def after_a_forward_without_gradients(model, cs, x):
    with torch.no_grad():
        model(x[1])
    value = loss(model(x[0]))
    with torch.no_grad():
        model(x[1])
        cs.penalty()
    (value + cs.penalty()).backward()


@order(1, 1)
def after_a_backward(model, cs, x):
    loss(model(x[0])).backward()
    cs.penalty().backward()


@order(0, 1)
def only_the_penalty(model, cs, x):
    model(x[0])
    cs.penalty().backward()


@order(0, 1)
def never_a_forward(_model, cs, _x):
    cs.penalty().backward()


@order(1, 1)
def the_penalty_first_with_a_graph_retained(model, cs, x):
    value, penalty = loss(model(x[0])), cs.penalty()
    penalty.backward(retain_graph=True)
    value.backward()


@order(1, 1)
def temperature_changed_since_the_last_forward(model, cs, x):
    loss(model(x[0]))  # with gradients, and never used
    for gate in cs.gates.values():
        gate.temperature.fill_(5.0)
    penalty = cs.penalty()
    (loss(model(x[0])) + penalty).backward()


@order(1, 1)
def score_changed_since_the_last_forward(model, cs, x):
    loss(model(x[0]))
    with torch.no_grad():
        for gate in cs.gates.values():
            gate.score.add_(0.3)
    (cs.penalty() + loss(model(x[0]))).backward()


@order(1, 1)
def inside_the_hard_context(model, cs, x):
    value = loss(model(x[0]))
    with cs.hard():
        model(x[1])
        penalty = cs.penalty()
    (value + penalty).backward()


@order(1, 1)
def checkpointed(model, cs, x):
    value = loss(checkpoint(model, x[0], use_reentrant=False))
    (value + cs.penalty()).backward()


@order(2, 2)
def checkpointed_accumulation(model, cs, x):
    for batch in x:
        penalty = cs.penalty()
        (penalty + loss(checkpoint(model, batch, use_reentrant=False))).backward()


@pytest.mark.parametrize("granularity", ["weight", "filter"])
@pytest.mark.parametrize("build", [ConvNet, TiedTransformer])
@pytest.mark.parametrize("name", ORDERS)
def test_the_penalty_is_right_in_every_order(name, build, granularity):
    function, batches, penalties = ORDERS[name]
    model = seeded(build).eval()
    x = [tokens(), tokens() + 0] if build is TiedTransformer else images(2, 3, 2, 5, 5)().unbind()
    cs = prunus.ContinuousSparsification(
        model, steps=9, penalty=LAMBDA, select="all", granularity=granularity
    )
    with torch.no_grad():
        for gate in cs.gates.values():
            gate.score.normal_()
            gate.temperature.fill_(2.0)
    function(model, cs, x)
    expected = naive_gradients(model, x[:batches], penalties)
    for parameter, (gate, w) in prunus.gates.gated_parameters(model).items():
        grad_w, grad_s = expected[parameter]
        torch.testing.assert_close(gate.score.grad, grad_s, atol=1e-5, rtol=1e-4)
        if batches:
            torch.testing.assert_close(w.grad, grad_w, atol=1e-5, rtol=1e-4)


def test_the_value_of_the_penalty():
    model = seeded(ConvNet)
    cs = prunus.ContinuousSparsification(model, steps=9, penalty=0.5, mask_init=0.0)
    count = 6 * 2 * 9 + 4 * 6 * 9
    assert cs.penalty().item() == pytest.approx(0.5 * 0.5 * count)
    model(images(2, 2, 5, 5)())
    assert cs.penalty().item() == pytest.approx(0.5 * 0.5 * count)


def test_no_penalty_is_zero():
    model = seeded(ConvNet)
    cs = prunus.ContinuousSparsification(model, steps=9, penalty=0.0, mask_init=0.1)
    assert cs.penalty().item() == 0
    (loss(model(images(2, 2, 5, 5)())) + cs.penalty()).backward()
    assert all(gate.score.grad.any() for gate in cs.gates.values())


def test_a_penalty_taken_before_the_loss_went_backward_alone_has_its_own_gradient():
    model = seeded(ConvNet)
    cs = prunus.ContinuousSparsification(model, steps=9, penalty=0.5)
    value, penalty = loss(model(images(2, 2, 5, 5)())), cs.penalty()
    value.backward()
    model.zero_grad()
    penalty.backward()
    for gate in cs.gates.values():  # lambda * beta * m * (1 - m), with m = 0.5
        torch.testing.assert_close(gate.score.grad, torch.full_like(gate.score, 0.5 * 0.25))


def test_scores_that_changed_since_the_forward_pass_are_an_error_not_a_wrong_gradient():
    w = nn.Parameter(torch.randn(4, 3, 2, 2))
    gate = gate_for(w, 0.1, 2.0)
    out = gate(w)
    with torch.no_grad():
        gate.score.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


# A whole training run


class NaiveConvNet(nn.Module):
    """`ConvNet` with the published layer: the mask is a tensor, multiplied in the forward pass."""

    def __init__(self, mask_init, scale):
        super().__init__()
        self.net = ConvNet()
        self.scores = nn.ParameterList(
            nn.Parameter(torch.full_like(conv.weight, mask_init, dtype=torch.float64))
            for conv in (self.net.conv1, self.net.conv2)
        )
        self.scale, self.beta = scale, 1.0

    def masks(self):
        return [torch.sigmoid(self.beta * s) for s in self.scores]

    def forward(self, x):
        net, (m1, m2) = self.net, self.masks()
        w1, w2 = self.scale * m1 * net.conv1.weight, self.scale * m2 * net.conv2.weight
        x = F.relu(net.bn(F.conv2d(x, w1, net.conv1.bias, padding=1)))
        return net.fc(F.relu(F.conv2d(x, w2, padding=1)).mean((2, 3)))


# Without penalty and scale every float32 is the same bit for bit, by PyTorch's operations. With
# them the fused formula rounds once where the naive one rounds twice (lambda + g*w, c*m*w); in
# float64 those are last bits still after fifty steps.
@pytest.mark.parametrize(
    ("mask_scale", "mask_init", "strength", "dtype", "close"),
    [
        ("none", 0.05, 0.0, torch.float32, {"atol": 0, "rtol": 0}),
        ("none", 0.05, 1e-5, torch.float64, {"atol": 1e-12, "rtol": 1e-10}),
        ("init", 0.0, 1e-5, torch.float64, {"atol": 1e-12, "rtol": 1e-10}),
    ],
)
def test_fifty_steps_equal_the_naive_implementation(
    mask_scale, mask_init, strength, dtype, close, monkeypatch
):
    monkeypatch.setattr(prunus.gates.native, "takes", lambda *_: False)
    steps, final = 50, 100.0
    scale = 1 + math.exp(-mask_init) if mask_scale == "init" else 1.0
    model = seeded(ConvNet).to(dtype)
    naive = seeded(lambda: NaiveConvNet(mask_init, scale)).to(dtype)
    naive.net.load_state_dict(model.state_dict())
    cs = prunus.ContinuousSparsification(
        model,
        steps=steps,
        mask_init=mask_init,
        penalty=strength,
        final_temperature=final,
        mask_scale=mask_scale,
    )
    ours = torch.optim.SGD(
        cs.param_groups(0.02, score_lr=0.1, weight_decay=1e-3), momentum=0.9, nesterov=True
    )
    groups = [
        {"params": list(naive.net.parameters()), "lr": 0.02, "weight_decay": 1e-3},
        {"params": list(naive.scores), "lr": 0.1, "weight_decay": 0.0},
    ]
    theirs = torch.optim.SGD(groups, momentum=0.9, nesterov=True)
    generator = torch.Generator().manual_seed(3)
    for t in range(steps):
        x = torch.randn(8, 2, 5, 5, generator=generator, dtype=dtype)
        y = torch.randint(3, (8,), generator=generator)
        naive.beta = final ** (t / steps)
        assert cs.temperature == pytest.approx(naive.beta)
        loss_ours = F.cross_entropy(model(x), y) + cs.penalty()
        l1 = sum(m.sum() for m in naive.masks())
        loss_naive = F.cross_entropy(naive(x), y) + strength * l1
        torch.testing.assert_close(loss_ours, loss_naive, **close)
        for optimizer, value in ((ours, loss_ours), (theirs, loss_naive)):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        cs.step()
        for gate, score in zip(cs.gates.values(), naive.scores, strict=True):
            torch.testing.assert_close(gate.score, score, **close)
        plain = prunus.gates.plain_tensors(model)
        for name, tensor in naive.net.state_dict().items():
            torch.testing.assert_close(plain[name], tensor, **close)
    assert 0 < cs.mask().density < 1
