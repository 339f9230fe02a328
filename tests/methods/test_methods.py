"""What every method does: hardening, saving and resuming, the registry."""

import ast
import copy
import io
from functools import partial
from pathlib import Path

import pytest
import torch

import prunus
from prunus import gates as gating
from prunus.gates import plain_tensors
from prunus.methods import builtin
from support.models import ConvNet, images, lstm, seeded

x = images(4, 2, 5, 5)()


def make_cs(model):
    return prunus.ContinuousSparsification(
        model, steps=6, mask_init=0.01, penalty=1e-4, select="all", rewind_step=2
    )


def make_imp(model):
    return prunus.IterativeMagnitudePruning(
        model, steps=6, rate=0.3, select="all", rewind_step=2, rewind=False
    )


def maker(name, **settings):
    def make(model):
        return prunus.METHODS[name](model, steps=6, select="all", rewind_step=2, **settings)

    return make


def make_cs_budget(model, **settings):
    cs = maker("cs", target_density=0.4, penalty=1e-4, **settings)(model)
    with torch.no_grad():  # at the start no score is above zero, which a ticket would warn of
        for gate in cs.gates.values():
            gate.score.add_(0.01)
    return cs


def make_cs_learned_size(model):
    model.bn = torch.nn.GroupNorm(2, 6)  # with BatchNorm a kept weight counts as a constant
    return make_cs_budget(model)


def make_iss(model):
    return prunus.IterativeStochasticSparsification(
        model, steps=6, penalty=1e-4, score_lr=5.0, select="all", rewind_step=2, rewind=False
    )


def make_netslim(model):
    return prunus.NetworkSlimming(
        model, steps=6, target_density=0.4, penalty=1e-3, select="all", rewind_step=2
    )


def make_l0(model):
    return prunus.L0Regularisation(
        model, steps=6, penalty=1e-4, samples=1, select="all", rewind_step=2
    )


def make_l0_expected(model):
    l0 = prunus.L0Regularisation(
        model, steps=6, penalty=1e-4, rule="expected", select="all", rewind_step=2
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # of six steps none is long enough to close a gate
        for gate in l0.gates.values():
            gate.log_alpha.add_(3 * torch.randn(gate.log_alpha.shape, generator=generator))
    return l0


def make_str(model):
    return prunus.SoftThresholdReparameterisation(
        model, steps=6, s_init=-2.0, threshold_decay=0.1, select="all", rewind_step=2
    )


def make_dnw(model):
    return prunus.DiscoveringNeuralWirings(
        model, steps=6, target_density=0.3, select="all", rewind_step=2
    )


def make_amc(model):
    return prunus.AMC(
        model, steps=6, target_density=0.3, episodes=3, warmup=1, select="all", rewind_step=2
    )


METHODS = {
    "cs": make_cs,
    "cs budget": make_cs_budget,
    "cs budget, scores in the optimiser": partial(make_cs_budget, scores="optimiser"),
    "cs budget, learned size": make_cs_learned_size,
    "imp": make_imp,
    "imp-c": maker("imp-c", rate=[0.3, 0.2, 0.1]),
    "seq-cs": maker("seq-cs", rate=0.3, penalty=1e-4),
    "mp": maker("mp", target_density=0.4),
    "gmp": maker("gmp", target_density=0.4, start=0.2, end=0.7),
    "random": maker("random", target_density=0.4, seed=3),
    "iss": make_iss,
    "netslim": make_netslim,
    "l0": make_l0,
    "l0 expected": make_l0_expected,
    "str": make_str,
    "dnw": make_dnw,
    "amc": make_amc,
    "rigl": maker("rigl", target_density=0.3, every=2),
    "pilot": maker("pilot", target_density=0.4, penalty=1e-3),
    "cts": maker("cts", target_density=0.4, search=0.5),
    "cts by the loss": maker("cts", target_density=0.4, search=1.0, objective="loss"),
    "acdc": maker("acdc", target_density=0.4, start=0.2, phase=0.3),
    "feather": maker("feather", target_density=0.4),
    "feather, halved gradients": maker("feather", target_density=0.3, theta=0.5),
    "snip": maker("snip", target_density=0.4),
    "snip of more batches": maker("snip", target_density=0.4, batches=2),
    "synflow": maker("synflow", target_density=0.4, iterations=5),
    "wanda": maker("wanda", target_density=0.4),
}


def judge(method):
    """A score of the model as it is, for methods that try masks; leaves the model as it was."""

    def evaluate():
        training = method.model.training
        score = method.model.eval()(x).square().mean().item()
        method.model.train(training)
        return score

    return evaluate


def sgd(method, **options):
    options = {"momentum": 0.9, "weight_decay": 1e-2, **options}
    if method.name in ("cs", "seq-cs") and method.scores == "optimiser":
        options["score_lr"] = 0.5
    return torch.optim.SGD(method.param_groups(0.1, **options))


def train(method, optimizer, steps=3, batch=x, *, clear_first=True):
    torch.manual_seed(9)  # for methods that draw masks
    for _ in range(steps):
        (method.model(batch).square().mean() + method.penalty()).backward()
        optimizer.step()
        if clear_first:
            optimizer.zero_grad()
        method.step()
        if not clear_first:
            optimizer.zero_grad()


def test_registry():
    assert all(cls.name == name for name, cls in prunus.METHODS.items())
    assert {name.partition(" ")[0].rstrip(",") for name in METHODS} == set(prunus.METHODS)
    for cls in prunus.METHODS.values():
        assert getattr(prunus, cls.__name__) is cls and cls.__name__ in dir(prunus)


def test_type_checkers_see_the_same_methods():
    tree = ast.parse(Path(builtin.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    seen = {(node.module, alias.asname) for node in imports for alias in node.names}
    assert seen - {("typing", None)} == set(builtin.CLASSES.values())


@pytest.mark.parametrize("name", METHODS)
def test_gradients_may_be_cleared_before_or_after_step(name):
    found = []
    for clear_first in (True, False):
        method = METHODS[name](seeded(ConvNet))
        for _ in range(2):
            train(method, sgd(method), 6, clear_first=clear_first)
            method.end_round(judge(method))
        train(method, sgd(method), 3, clear_first=clear_first)
        found.append(method)
    assert_same(*found)


# Hardening

OPTIMISERS = {
    "sgd": lambda groups: torch.optim.SGD(groups, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": lambda groups: torch.optim.AdamW(groups, foreach=False),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("name", METHODS)
def test_removed_weights_stay_zero_in_fine_tuning(name, optimiser):
    model = seeded(ConvNet)
    method = METHODS[name](model)
    optimizer = OPTIMISERS[optimiser](method.param_groups(0.05, weight_decay=0.1))
    train(method, optimizer, 4)
    if name == "cs":
        with torch.no_grad():
            for gate in method.gates.values():
                gate.score.normal_()
    else:
        method.end_round(judge(method))
    mask = method.harden()
    own = {id(p) for gate in method.gates.values() for p in gate.parameters()}
    scores = {n: p.clone() for n, p in model.named_parameters() if id(p) in own}
    before = model.conv1.weight.detach().clone()
    t = method.t
    train(method, optimizer, 5)  # the same optimiser, momentum and all
    assert method.t == t
    assert 0 < mask.density < 1
    assert method.mask() == mask
    for parameter, kept in mask.items():
        assert not model.get_submodule(parameter.rpartition(".")[0]).weight[~kept].any()
    assert not torch.equal(model.conv1.weight, before)
    for n, score in scores.items():
        assert torch.equal(model.get_parameter(n), score)
        assert model.get_parameter(n).grad is None
    assert method.penalty().item() == 0
    with pytest.raises(prunus.AttachError, match="no rounds any more"):
        method.end_round()
    model.eval()
    output = model(x)
    method.strip()
    assert torch.equal(model(x), output)
    for parameter, kept in mask.items():
        assert not model.get_parameter(parameter)[~kept].any()


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_removed_weights_of_a_ticket_stay_zero_in_retraining(optimiser):
    model = seeded(ConvNet)
    imp = make_imp(model)
    train(imp, sgd(imp), 6)
    imp.end_round()
    retrained = imp.ticket().apply(seeded(ConvNet, 5))
    groups = [{"params": list(retrained.parameters()), "lr": 0.05, "weight_decay": 0.1}]
    optimizer = OPTIMISERS[optimiser](groups)
    for _ in range(4):
        optimizer.zero_grad()
        retrained(x).square().mean().backward()
        optimizer.step()
    assert prunus.Mask.of(retrained) == imp.mask()
    for parameter, kept in imp.mask().items():
        module = retrained.get_submodule(parameter.rpartition(".")[0])
        assert not module.weight[~kept].any()
        assert module.weight[kept].all()


# Saving and resuming


def to_start(method, optimizer):
    """Nothing has happened yet."""


def to_mid_round(method, optimizer):
    train(method, optimizer, 3)


def to_between_rounds(method, optimizer):
    train(method, optimizer, 6)
    method.end_round(judge(method))


def to_second_round(method, optimizer):
    to_between_rounds(method, optimizer)
    train(method, optimizer, 2)


def to_hardened(method, optimizer):
    to_second_round(method, optimizer)
    method.harden(judge(method))
    train(method, optimizer, 2)


def to_hardened_between_rounds(method, optimizer):
    to_between_rounds(method, optimizer)
    method.harden()


MOMENTS = [
    to_start, to_mid_round, to_between_rounds, to_second_round, to_hardened,
    to_hardened_between_rounds,
]  # fmt: skip


def saved(*states):
    buffer = io.BytesIO()
    torch.save(states, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def assert_same(one, two):
    a, b = one.model.state_dict(), two.model.state_dict()
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
    assert one.mask() == two.mask()
    assert (one.round, one.t, one.hardened) == (two.round, two.t, two.hardened)
    copies = [copy.deepcopy(m.model).eval() for m in (one, two)]
    assert torch.equal(copies[0](x), copies[1](x))
    with prunus.hard(copies[0]), prunus.hard(copies[1]):
        assert torch.equal(copies[0](x), copies[1](x))
    kind = "rewind" if one.round > 1 or one.t >= 2 else "current"
    for method in (one, two):
        if method.t:
            method.commit(judge(method))
    tickets = one.ticket(kind), two.ticket(kind)
    assert tickets[0].mask == tickets[1].mask
    for name, tensor in tickets[0].weights.items():
        assert torch.equal(tensor, tickets[1].weights[name])
    assert tickets[0].manifest.settings == tickets[1].manifest.settings


@pytest.mark.parametrize("model_first", [True, False])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", METHODS)
def test_state_round_trips_at_any_moment(name, moment, model_first):
    method = METHODS[name](seeded(ConvNet))
    optimizer = sgd(method)
    moment(method, optimizer)
    states = saved(method.model.state_dict(), method.state_dict(), optimizer.state_dict())

    other = METHODS[name](seeded(ConvNet, 7))
    new_optimizer = sgd(other)
    if model_first:
        other.model.load_state_dict(states[0])
    other.load_state_dict(states[1])
    if not model_first:
        other.model.load_state_dict(states[0])
    new_optimizer.load_state_dict(states[2])
    assert_same(method, other)

    for resumed, theirs in ((method, optimizer), (other, new_optimizer)):
        train(resumed, theirs, 2)
    assert_same(method, other)
    if not method.hardened:
        assert method.end_round(judge(method)) == other.end_round(judge(other))
        assert_same(method, other)


@pytest.mark.parametrize("name", METHODS)
def test_a_hardened_method_can_go_back_to_an_earlier_state(name):
    method = METHODS[name](seeded(ConvNet))
    optimizer = sgd(method)
    train(method, optimizer, 3)
    states = saved(method.model.state_dict(), method.state_dict())
    twin = copy.deepcopy(method)
    method.harden(judge(method))
    method.model.load_state_dict(states[0])
    method.load_state_dict(states[1])
    assert_same(method, twin)
    for resumed in (method, twin):
        train(resumed, sgd(resumed), 2)
    assert_same(method, twin)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", METHODS)
def test_a_copy_at_any_moment_continues_identically(name, moment):
    method = METHODS[name](seeded(ConvNet))
    moment(method, sgd(method))
    twin = copy.deepcopy(method)
    for resumed in (method, twin):
        train(resumed, sgd(resumed), 2)
    assert_same(method, twin)
    twin.remove()
    assert method.mask().total == 2 * 6 * 9 + 6 * 4 * 9 + 12
    train(method, sgd(method), 1)


def test_recurrent_models_round_trip():
    batch = images(3, 5, 4)()
    model, fresh = seeded(lstm), seeded(lstm, 1)
    cs, other = make_cs(model), make_cs(fresh)
    train(cs, sgd(cs), 3, batch)
    states = saved(model.state_dict(), cs.state_dict())
    other.load_state_dict(states[1])
    fresh.load_state_dict(states[0])
    assert torch.equal(fresh(batch), model(batch))
    for method in (cs, other):
        train(method, sgd(method), 2, batch)
    assert torch.equal(fresh(batch), model(batch))


def test_a_state_of_another_method_is_refused():
    cs, imp = make_cs(seeded(ConvNet)), make_imp(seeded(ConvNet))
    with pytest.raises(prunus.SettingError, match=r"'imp'.*'cs'"):
        cs.load_state_dict(imp.state_dict())


def test_the_weights_to_rewind_to_are_a_copy():
    model = seeded(ConvNet)
    method = make_imp(model)
    train(method, sgd(method), 2)
    early = {n: t.clone() for n, t in plain_tensors(model).items()}
    train(method, sgd(method), 2)
    ticket = method.ticket(whole=True)
    assert all(torch.equal(ticket.weights[n], t) for n, t in early.items())


@pytest.mark.parametrize("name", METHODS)
def test_a_hardened_mask_is_not_decided_again(name):
    method = METHODS[name](seeded(ConvNet))
    train(method, sgd(method))
    method.end_round(judge(method))
    mask = method.harden()
    assert method.commit(judge(method)) == mask == method.mask()


@pytest.mark.parametrize("name", METHODS)
def test_commit_between_rounds_gives_the_mask_of_the_last_one(name):
    method = METHODS[name](seeded(ConvNet))
    train(method, sgd(method))
    mask = method.end_round(judge(method))
    assert method.commit(judge(method)) == mask == method.mask()


AT_THEIR_DENSITY = [
    "cs budget", "mp", "gmp", "netslim", "random", "dnw", "rigl", "acdc", "feather", "snip",
    "synflow", "wanda", "pilot", "cts",
]  # fmt: skip


@pytest.mark.parametrize("name", AT_THEIR_DENSITY)
def test_a_ticket_has_the_wanted_density_without_another_call(name):
    method = METHODS[name](seeded(ConvNet))
    train(method, sgd(method), 2)
    mask = method.ticket().mask
    assert mask.kept == pytest.approx(method.settings["target_density"] * mask.total, abs=2)
    stripped = prunus.gates.plain_tensors(method.strip())
    assert all(not stripped[n][~mask[n]].any() for n in mask)


@pytest.mark.parametrize("name", ["str", "netslim", "l0", "dnw", "cs", "iss", "feather", "pilot"])
def test_hardened_after_rewinding_the_kept_weights_are_the_early_ones(name):
    method = METHODS[name](seeded(ConvNet))
    train(method, sgd(method))
    mask = method.end_round(judge(method))
    method.rewind()
    early = {n: t.clone() for n, t in plain_tensors(method.model).items()}
    method.harden()
    for gated, (gate, weight) in gating.gated_parameters(method.model).items():
        expected = torch.where(mask[gated], early[gated], 0.0) * gate.scale
        assert torch.equal(gate(weight), expected)
    method.model.zero_grad()
    method.model(x).square().mean().backward()
    for gated, (_, weight) in gating.gated_parameters(method.model).items():
        assert not weight.grad[~mask[gated]].any()


@pytest.mark.parametrize("leave", ["strip", "remove", "harden", "prunus.strip of a copy"])
@pytest.mark.parametrize("name", ["cs", "iss", "l0"])
def test_frozen_weights_train_again_when_the_search_is_over(name, leave):
    model = seeded(ConvNet)
    first = next(model.parameters())
    first.requires_grad_(False)  # by the user, and so for good
    trained = {n: p.requires_grad for n, p in model.named_parameters()}
    before = {n: t.clone() for n, t in plain_tensors(model).items()}
    settings = {"samples": 1} if name == "l0" else {}
    method = prunus.METHODS[name](
        model, steps=6, select="all", rewind_step=2, freeze_weights=True, **settings
    )
    optimizer = torch.optim.SGD(method.param_groups(0.1), momentum=0.9)
    for _ in range(3):
        (model(x).square().mean() + method.penalty()).backward()
        optimizer.step()
        method.step()
    parameters = dict(model.named_parameters())
    assert all(torch.equal(before[n], t) for n, t in plain_tensors(model).items() if n in trained)
    assert {n for n, p in parameters.items() if p.requires_grad} == {
        n for n in parameters if n.endswith((".score", ".log_alpha"))
    }
    if leave == "harden":
        method.harden()
        plain = plain_tensors(model)
        assert {n: plain[n].requires_grad for n in trained} == trained
    else:
        copied = copy.deepcopy(model)
        left = prunus.strip(copied) if "copy" in leave else getattr(method, leave)()
        assert {n: p.requires_grad for n, p in left.named_parameters()} == trained


def test_a_round_without_steps_cannot_end():
    cs = prunus.ContinuousSparsification(seeded(ConvNet), steps=2, mask_init=-0.1)
    with pytest.raises(prunus.AttachError, match="round 1 has had no step"):
        cs.end_round()
    cs.step()
    found = cs.end_round()
    with pytest.raises(prunus.AttachError, match="round 2 has had no step"):
        cs.end_round()
    assert cs.mask() == found


def test_a_round_that_cannot_rewind_changes_nothing():
    cs = prunus.ContinuousSparsification(seeded(ConvNet), steps=5, rewind_step=3, rewind=True)
    cs.step()
    before = copy.deepcopy(cs.model.state_dict())
    with pytest.raises(prunus.AttachError, match="step 3 of round 1"):
        cs.end_round()
    assert (cs.round, cs.t) == (1, 1)
    assert all(torch.equal(v, before[k]) for k, v in cs.model.state_dict().items())


def test_attaching_is_all_or_nothing(monkeypatch):
    model = seeded(ConvNet)
    names = list(model.state_dict())
    attach, calls = gating.attach, []

    def fail_at_the_second(candidate, gate):
        calls.append(candidate)
        if len(calls) == 2:
            raise RuntimeError("no more")
        return attach(candidate, gate)

    monkeypatch.setattr(gating, "attach", fail_at_the_second)
    with pytest.raises(RuntimeError, match="no more"):
        prunus.ContinuousSparsification(model, steps=1)
    assert list(model.state_dict()) == names
