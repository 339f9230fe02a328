"""What training loops ask of methods: following, groups, the penalty, evaluation."""

import copy

import pytest
import torch
from torch import nn

import prunus
from support.models import ConvNet, images, seeded

x = images(8, 2, 5, 5)()

METHODS = {
    "cs": ("cs", {"mask_init": 0.01, "penalty": 1e-3}),
    "cs with a budget": ("cs", {"target_density": 0.4, "penalty": 1e-3}),
    "imp": ("imp", {"rate": 0.3}),
    "iss": ("iss", {"penalty": 1e-3, "score_lr": 5.0}),
    "rigl": ("rigl", {"target_density": 0.3, "every": 2}),
}


def attach(name, seed=0, **more):
    cls, settings = METHODS[name]
    settings = {"steps": 6, "select": "all", "rewind_step": 2, **settings, **more}
    return prunus.METHODS[cls](seeded(ConvNet, seed), **settings)


def adam(method):
    # With the automatic rate, which is for SGD, Adam would close every gate of CS at once.
    own = {"score_lr": 0.01} if getattr(method, "scores", None) == "optimiser" else {}
    return torch.optim.AdamW(method.param_groups(0.01, weight_decay=0.1, **own))


def train(method, optimizer, steps, parts=1, *, by_hand=False):
    """A loop of somebody else, with accumulation over `parts`; and one call of ours, or none."""
    torch.manual_seed(9)  # for methods that draw masks
    for _ in range(steps):
        for part in x.split(len(x) // parts):
            ((method.model(part).square().mean() + method.penalty()) / parts).backward()
        optimizer.step()
        if by_hand:
            method.step()
        method.model.zero_grad()


def assert_same(one, two):
    a, b = one.model.state_dict(), two.model.state_dict()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert one.mask() == two.mask()
    assert one.life == two.life


# Following an optimiser


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_follows_equals_one_that_is_told(name, parts):
    told, following = attach(name), attach(name)
    for _ in range(2):
        train(told, adam(told), 6, parts, by_hand=True)
        optimizer = adam(following)  # another one for each round: the old one is not followed now
        following.follow(optimizer)
        train(following, optimizer, 6, parts)
        assert_same(told, following)
        assert told.end_round() == following.end_round()
    assert following.round == 3


@pytest.mark.parametrize("name", METHODS)
def test_a_step_by_hand_is_refused_while_the_optimiser_makes_it(name):
    method = attach(name)
    method.follow(adam(method))
    method.step()  # its optimiser is gone, so nothing is followed any more
    optimizer = adam(method)
    with method.follow(optimizer):
        with pytest.raises(prunus.AttachError, match=r"would count the step twice: leave it out"):
            method.step()
        assert method.t == 1
        train(method, optimizer, 1)
        assert method.t == 2
        with pytest.raises(prunus.AttachError, match="twice"):
            method.step()
    train(method, optimizer, 1)
    assert method.t == 2
    method.step()
    assert method.t == 3


def test_one_optimiser_is_followed_at_a_time_and_each_step_counts_once():
    cs = attach("cs")
    first, second = adam(cs), adam(cs)
    cs.follow(first)
    cs.follow(second)
    train(cs, first, 1)
    assert cs.t == 0
    cs.follow(second)
    train(cs, second, 1)
    assert cs.t == 1


def test_only_an_optimiser_can_be_followed():
    cs = attach("cs")
    with pytest.raises(prunus.SettingError, match=r"follow\(list\): give it the torch"):
        cs.follow(cs.param_groups(0.1))


@pytest.mark.parametrize("name", METHODS)
def test_following_a_hardened_method_changes_nothing_but_the_kept_weights(name):
    told, following = attach(name), attach(name)
    optimizers = adam(told), adam(following)
    following.follow(optimizers[1])
    train(told, optimizers[0], 6, by_hand=True)
    train(following, optimizers[1], 6)
    mask = told.harden()
    assert following.harden() == mask
    following.step()  # does nothing, and so does no harm
    for method, optimizer in zip((told, following), optimizers, strict=True):
        train(method, optimizer, 3)
    assert_same(told, following)
    assert following.mask() == mask
    assert following.t == 6


@pytest.mark.parametrize("leave", [lambda m: m.strip(), lambda m: prunus.strip(m.model)])
def test_the_optimiser_of_a_model_that_was_stripped_still_works(leave):
    cs = attach("cs", mask_init=0.5)
    optimizer = adam(cs)
    cs.follow(optimizer)
    train(cs, optimizer, 6)
    leave(cs)
    before = cs.model.fc.weight.detach().clone()
    cs.model(x).square().mean().backward()
    optimizer.step()
    assert not torch.equal(cs.model.fc.weight, before)


@pytest.mark.parametrize("name", METHODS)
def test_resumed_while_following(name):
    whole, part = attach(name), attach(name)
    one, two = adam(whole), adam(part)
    whole.follow(one)
    train(whole, one, 3)
    train(whole, one, 3)
    part.follow(two)
    train(part, two, 3)
    states = part.model.state_dict(), part.state_dict(), two.state_dict()

    resumed = attach(name, seed=1)
    optimizer = adam(resumed)
    resumed.follow(optimizer)  # before loading or after it
    for thing, state in zip((resumed.model, resumed, optimizer), states, strict=True):
        thing.load_state_dict(copy.deepcopy(state))
    train(resumed, optimizer, 3)
    assert_same(whole, resumed)


def test_a_copy_follows_nothing():
    cs = attach("cs with a budget")
    optimizer = adam(cs)
    cs.follow(optimizer)
    train(cs, optimizer, 2)
    twin, other = copy.deepcopy((cs, optimizer))
    train(cs, optimizer, 1)
    assert (cs.t, twin.t) == (3, 2)
    assert not other._optimizer_step_post_hooks
    twin.step()
    assert (cs.t, twin.t) == (3, 3)


# Groups of people's own


def split(model):
    """As for Muon or without decay for vectors: by shape, in the order of the model."""
    named = list(model.named_parameters())
    return (
        [p for _, p in named if p.dim() > 1],
        [p for _, p in named if p.dim() < 2],
    )


def ids(parameters):
    return [id(p) for p in parameters]


@pytest.mark.parametrize("when", ["before attaching", "after attaching"])
@pytest.mark.parametrize("name", METHODS)
def test_own_groups_keep_order_and_options(name, when):
    model = seeded(ConvNet)
    matrices, vectors = split(model)
    cls, settings = METHODS[name]
    method = prunus.METHODS[cls](model, steps=6, select="all", **settings)
    scores = [p for gate in method.gates.values() for p in gate.parameters()]
    given = matrices, vectors
    if when == "after attaching":  # then the scores are among the parameters of the model
        given = split(model)
        assert bool(scores) == (set(ids(given[0])) > set(ids(matrices)))
    groups = [
        {"params": iter(given[0]), "use_muon": True, "lr": 0.02},
        {"params": given[1], "weight_decay": 0.0},
    ]
    first, second, *own = method.param_groups(0.001, groups, weight_decay=0.1, use_muon=False)
    assert sorted(ids(first["params"])) == sorted(ids(matrices))
    expected = [id(p) for p in given[0] if id(p) not in ids(scores)]
    assert ids(first["params"]) == expected
    assert ids(second["params"]) == ids(vectors)
    options = [{k: v for k, v in g.items() if k != "params"} for g in (first, second)]
    assert options == [
        {"use_muon": True, "lr": 0.02, "weight_decay": 0.1},
        {"use_muon": False, "lr": 0.001, "weight_decay": 0.0},
    ]
    if name == "cs":
        [of_scores] = own
        assert ids(of_scores["params"]) == ids(scores)
        assert (of_scores["weight_decay"], of_scores["use_muon"]) == (0.0, False)
        assert of_scores["lr"] == method.param_groups(0.001)[1]["lr"]
    else:
        assert own == []


@pytest.mark.parametrize("name", ["l0", "netslim", "str"])
def test_the_gates_of_other_methods_have_their_own_group_too(name):
    method = prunus.METHODS[name](seeded(ConvNet), steps=6, select="all")
    groups = method.param_groups(0.1, [{"params": method.model.parameters(), "momentum": 0.5}])
    gates = [p for gate in method.gates.values() for p in gate.parameters()]
    assert [g.get("momentum") for g in groups] == [0.5, None]
    assert ids(groups[1]["params"]) == ids(gates)
    assert not set(ids(groups[0]["params"])) & set(ids(gates))


@pytest.mark.parametrize("form", ["parameters", "named", "one group", "a tensor"])
def test_groups_in_every_form_that_optimisers_take(form):
    cs = attach("cs with a budget")
    forms = {
        "parameters": cs.model.parameters,
        "named": cs.model.named_parameters,
        "one group": lambda: [{"params": cs.model.parameters()}],
        "a tensor": lambda: [{"params": cs.model.bn.weight}],
    }
    whole = ids(cs.param_groups(0.1)[0]["params"])
    optimizer = torch.optim.SGD(cs.param_groups(0.1, forms[form]()))
    held = ids(optimizer.param_groups[0]["params"])
    assert held == ([id(cs.model.bn.weight)] if form == "a tensor" else whole)
    assert (form == "named") == ("param_names" in optimizer.param_groups[0])


def test_own_groups_train_as_the_one_group_does():
    one, two = attach("cs"), attach("cs")
    groups = [{"params": part} for part in split(two.model)]
    optimizers = [
        torch.optim.SGD(m.param_groups(0.1, g, momentum=0.9, weight_decay=0.1))
        for m, g in ((one, None), (two, groups))
    ]
    for method, optimizer in zip((one, two), optimizers, strict=True):
        train(method, optimizer, 4, by_hand=True)
    assert_same(one, two)


def test_muon_for_the_matrices_of_a_transformer_and_adam_for_the_rest():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    batch = torch.randn(32, 6, 16)
    wanted = batch.flip(1)
    cs = prunus.ContinuousSparsification(model, steps=200, target_density=0.2, select="all")
    matrices, vectors = split(model)
    groups = [{"params": matrices, "lr": 0.02}, {"params": vectors, "weight_decay": 0.0}]
    of_muon, of_adam = cs.param_groups(0.003, groups, weight_decay=0.01)
    muon, adam = torch.optim.Muon([of_muon]), torch.optim.AdamW([of_adam])
    cs.follow(adam)
    losses = []
    for _ in range(200):
        loss = nn.functional.mse_loss(model(batch), wanted)
        loss.backward()
        for optimizer in (muon, adam):
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    mask = cs.harden()
    assert mask.kept == round(0.2 * mask.total)
    found = nn.functional.mse_loss(model(batch), wanted).item()
    assert found < 0.75 * losses[0] and abs(found - losses[-1]) < 0.05 * losses[0]


def test_a_group_of_gated_weights_is_refused():
    cs = attach("cs")
    with pytest.raises(prunus.SettingError, match=r"weight of shape \(3, 4\) .* behind its gate"):
        cs.param_groups(0.1, [{"params": [cs.model.fc.weight]}])


# The gradient of the penalty

PENALISED = {
    "cs": {"mask_init": 0.1},
    "cs with a budget": {"target_density": 0.4},
    "cs by macs": {"penalty_cost": "macs"},
    "cs by filters": {"granularity": "filter"},
    "iss": {},
    "l0": {"samples": 1},
    "netslim": {"target_density": 0.4},
}


def penalised(name, **more):
    settings = {"steps": 6, "select": "all", "penalty": 0.3, **PENALISED[name], **more}
    return prunus.METHODS[name.partition(" ")[0]](seeded(ConvNet).double(), **settings)


def gradients(method):
    return {n: p.grad for n, p in method.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("parts", "scale"), [(1, 1.0), (4, 1.0), (2, 1024.0)])
@pytest.mark.parametrize("name", PENALISED)
def test_regularize_equals_adding_the_penalty_to_the_loss(name, parts, scale):
    in_loss, beside_it = penalised(name), penalised(name)
    for method in (in_loss, beside_it):
        torch.manual_seed(9)  # for methods that draw masks
        for part in x.double().split(len(x) // parts):
            loss = method.model(part).square().mean()
            if method is in_loss:
                loss = loss + method.penalty()
            (scale * loss / parts).backward()
    without = {n: g.clone() for n, g in gradients(beside_it).items()}
    beside_it.regularize(scale)
    expected, found = gradients(in_loss), gradients(beside_it)
    assert expected.keys() == found.keys()
    for n, gradient in found.items():
        torch.testing.assert_close(gradient, expected[n], rtol=1e-9, atol=1e-12)
    own = {n for n in found if ".parametrizations." in n and not n.endswith("original")}
    assert own
    assert {n for n in found if not torch.equal(found[n], without[n])} == own


def test_regularize_by_hand_without_any_data():
    model = nn.Linear(2, 1, bias=False)
    cs = prunus.ContinuousSparsification(model, steps=2, select="all", penalty=0.5)
    score = cs.gates["weight"].score
    cs.regularize()
    # lambda * beta * m * (1 - m), with m = 1/2
    assert score.grad.tolist() == [[0.125, 0.125]]
    cs.regularize(scale=2.0)
    assert score.grad.tolist() == [[0.375, 0.375]]
    assert model.parametrizations.weight.original.grad is None


@pytest.mark.parametrize("name", PENALISED)
def test_regularize_between_forward_and_backward_leaves_the_loss_alone(name):
    early, late = penalised(name), penalised(name)
    for method in (early, late):
        torch.manual_seed(9)
        loss = method.model(x.double()).square().mean()
        if method is early:
            method.regularize()
        loss.backward()
        if method is late:
            method.regularize()
    for n, gradient in gradients(early).items():
        torch.testing.assert_close(gradient, gradients(late)[n], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["cs", "cs with a budget"])
def test_regularize_in_the_loop_of_a_method_that_follows(name):
    in_loss, beside_it = penalised(name), penalised(name)
    for method in (in_loss, beside_it):
        optimizer = torch.optim.SGD(method.param_groups(0.1), momentum=0.9)
        method.follow(optimizer)
        for _ in range(6):
            loss = method.model(x.double()).square().mean()
            (loss + method.penalty() if method is in_loss else loss).backward()
            if method is beside_it:
                method.regularize()
            optimizer.step()
            optimizer.zero_grad()
    for n, tensor in beside_it.model.state_dict().items():
        torch.testing.assert_close(tensor, in_loss.model.state_dict()[n], rtol=1e-6, atol=1e-6)


def test_regularize_does_nothing_without_a_penalty_or_once_hardened():
    imp = attach("imp")
    imp.regularize()
    cs = penalised("cs", penalty=0.0)
    cs.regularize()
    hardened = penalised("cs with a budget")
    with pytest.warns(prunus.errors.SearchWarning):
        hardened.harden()
    hardened.regularize()
    assert not any(gradients(method) for method in (imp, cs, hardened))


# The binary mask in evaluation


@pytest.mark.parametrize("name", METHODS)
def test_hard_in_eval_computes_with_the_binary_mask_in_evaluation_alone(name):
    method = attach(name)
    train(method, adam(method), 3, by_hand=True)
    model, keys = method.model.eval(), list(method.model.state_dict())
    soft = model(x)
    with method.hard():
        hard = model(x)
    assert method.hard_in_eval is False
    method.hard_in_eval = True
    assert torch.equal(model(x), hard)
    assert torch.equal(copy.deepcopy(model)(x), hard)
    assert list(model.state_dict()) == keys
    method.hard_in_eval = False
    assert torch.equal(model(x), soft)
    if name.startswith("cs"):
        assert not torch.equal(soft, hard)


@pytest.mark.parametrize("name", METHODS)
def test_hard_in_eval_does_not_change_what_is_learned(name):
    plain, hard = attach(name), attach(name)
    hard.hard_in_eval = True
    for method in (plain, hard):
        optimizer = adam(method)
        for _ in range(2):
            train(method, optimizer, 3, by_hand=True)
            with torch.no_grad():
                method.model.eval()(x)  # somebody's evaluation
            method.model.train()
    assert_same(plain, hard)
    assert plain.state_dict().keys() == hard.state_dict().keys()
    assert plain.settings == hard.settings
    assert hard.end_round() == plain.end_round()
    assert hard.harden() == plain.harden()
    assert_same(plain, hard)


def test_hard_in_eval_of_a_model_that_was_in_evaluation_mode_when_attached():
    cs = prunus.ContinuousSparsification(seeded(ConvNet).eval(), steps=6, mask_init=-0.1)
    cs.hard_in_eval = True
    assert not cs.model.conv1.weight.any()
    assert cs.model.train().conv1.weight.all()


def test_hard_in_eval_when_compiled():
    cs = attach("cs")
    train(cs, adam(cs), 3, by_hand=True)
    compiled = torch.compile(cs.model.eval(), backend="eager")
    with torch.no_grad():
        soft = compiled(x)
        cs.hard_in_eval = True
        hard, expected = compiled(x), cs.model(x)
    torch.testing.assert_close(hard, expected)
    assert not torch.allclose(soft, hard)


@pytest.mark.parametrize("name", METHODS)
def test_a_step_that_a_grad_scaler_skips_leaves_nothing_behind(name):
    """What follows equals a run in which that step was never tried."""
    skipping, plain = attach(name), attach(name)
    for method, losses in ((skipping, (1.0, float("inf"), 1.0)), (plain, (1.0, 1.0))):
        torch.manual_seed(9)
        optimizer, scale = adam(method), 2.0**10
        method.follow(optimizer)
        for factor in losses:
            scaler = torch.amp.GradScaler("cpu", init_scale=scale)  # the scale itself stays
            state = torch.get_rng_state()
            loss = method.model(x).square().mean() + method.penalty()
            scaler.scale(factor * loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            assert all(p.grad is None for p in method.model.parameters())
            if factor != 1:
                assert method.t == 1
                torch.set_rng_state(state)
    pairs = zip(skipping.model.parameters(), plain.model.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    assert skipping.mask() == plain.mask() and skipping.life == plain.life


# Loops that know little


@pytest.mark.parametrize("name", ["cs with a budget", "iss"])
def test_an_optimiser_of_all_parameters_leaves_withheld_ones_alone(name):
    told, withholding = attach(name), attach(name)
    train(told, adam(told), 6, by_hand=True)
    optimizer = torch.optim.AdamW(withholding.model.parameters(), 0.01, weight_decay=0.1)
    torch.manual_seed(9)
    for _ in range(6):
        (withholding.model(x).square().mean() + withholding.penalty()).backward()
        withholding.withhold()
        optimizer.step()
        withholding.step()
        withholding.model.zero_grad()
    assert_same(told, withholding)
    learned = {p for gate in withholding.gates.values() for p in gate.parameters()}
    assert not learned & set(optimizer.state)
