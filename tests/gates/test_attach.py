"""Putting gates on a model, copying it, and taking them off again without a trace."""

import copy
import io

import pytest
import torch
from torch import nn

import prunus
from prunus.gates import Gate, plain_tensors
from support.models import ConvNet, TiedTransformer, gru, images, lstm, mlp, seeded, tokens

x = images(3, 2, 5, 5)()


def attach(model, **settings):
    cs = prunus.ContinuousSparsification(model, steps=10, select="all", **settings)
    with torch.no_grad():
        for gate in cs.gates.values():
            nn.init.normal_(gate.score)
    return cs


def hard_output(model, batch):
    with prunus.hard(model):
        return model(batch).detach()


# Refusals


def test_a_second_method_is_refused():
    model = seeded(ConvNet)
    attach(model)
    with pytest.raises(prunus.AttachError, match=r"already under a method: conv1\.weight"):
        attach(model)


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile])
def test_a_wrapped_model_is_refused(wrap):
    with pytest.raises(prunus.AttachError, match="attach to the plain model first"):
        attach(wrap(seeded(ConvNet)))


def test_a_refusal_leaves_the_model_alone():
    model = seeded(ConvNet)
    with pytest.raises(prunus.SettingError, match="do not divide"):
        attach(model, granularity=(5, 5))
    assert not any(isinstance(m, Gate) for m in model.modules())
    assert attach(model).mask().total > 0


@pytest.mark.parametrize("leave", ["strip", "remove"])
@pytest.mark.parametrize("by", ["method", "function"])
@pytest.mark.parametrize(
    "use",
    [
        lambda cs: cs.step(),
        lambda cs: cs.end_round(),
        lambda cs: cs.penalty(),
        lambda cs: cs.param_groups(0.1),
        lambda cs: cs.rewind(),
        lambda cs: cs.harden(),
        lambda cs: cs.strip(),
        lambda cs: cs.remove(),
        lambda cs: cs.ticket("current"),
        lambda cs: cs.load_state_dict(cs.state_dict()),
        lambda cs: cs.hard().__enter__(),
    ],
)
def test_a_method_that_has_left_its_model_says_so(leave, by, use):
    model = seeded(ConvNet)
    cs = attach(model)
    getattr(cs, leave)() if by == "method" else getattr(prunus, leave)(model)
    with pytest.raises(prunus.AttachError, match="left its model"):
        use(cs)
    attach(model)
    with pytest.raises(prunus.AttachError, match="left its model"):
        use(cs)


# hard()


def test_hard_restores_nests_and_survives_exceptions():
    model = seeded(ConvNet).eval()
    cs = attach(model)
    soft = model(x)
    with cs.hard() as inside:
        assert inside is model
        hard = model(x)
        with prunus.hard(model):
            assert torch.equal(model(x), hard)
        assert torch.equal(model(x), hard)
    assert torch.equal(model(x), soft)
    assert not torch.equal(soft, hard)
    with pytest.raises(ZeroDivisionError), cs.hard():
        raise ZeroDivisionError
    assert torch.equal(model(x), soft)


def test_hard_does_not_soften_a_hardened_model():
    model = seeded(ConvNet).eval()
    cs = attach(model)
    cs.harden()
    hard = model(x)
    with cs.hard():
        assert torch.equal(model(x), hard)
    assert torch.equal(model(x), hard)


# strip and remove


def test_strip_leaves_no_trace():
    model, untouched = seeded(ConvNet), seeded(ConvNet)
    cs = attach(model)
    parameters = {id(p) for n, p in plain_tensors(model).items() if isinstance(p, nn.Parameter)}
    model(x)
    assert cs.strip() is model
    assert {id(p) for p in model.parameters()} == parameters
    for module, plain in zip(model.modules(), untouched.modules(), strict=True):
        assert type(module) is type(plain)
        assert vars(module).keys() == vars(plain).keys()
        for name in vars(plain):
            if "hook" in name:
                assert not getattr(module, name)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    assert b"prunus" not in buffer.getvalue()
    assert b"parametriz" not in buffer.getvalue()


@pytest.mark.parametrize("build", [ConvNet, lstm, TiedTransformer, mlp])
@pytest.mark.parametrize("leave", [prunus.strip, prunus.remove])
def test_parameters_keep_their_order(build, leave):
    # An optimiser's state_dict knows parameters by position alone.
    model, untouched = seeded(build), seeded(build)
    attach(model)
    leave(model)
    ours, theirs = dict(model.named_parameters()), dict(untouched.named_parameters())
    assert [(n, p.shape) for n, p in ours.items()] == [(n, p.shape) for n, p in theirs.items()]
    assert list(model.state_dict()) == list(untouched.state_dict())


def test_a_stripped_model_can_be_sparsified_again():
    model = seeded(ConvNet).eval()
    attach(model).strip()
    before = model(x)
    cs = prunus.IterativeMagnitudePruning(model, steps=1, select="all")
    assert torch.equal(model(x), before)
    cs.remove()
    assert torch.equal(model(x), before)


def test_an_optimiser_stays_valid_after_strip():
    model = seeded(ConvNet)
    cs = attach(model)
    optimizer = torch.optim.SGD(cs.param_groups(0.1), momentum=0.9)
    model(x).sum().backward()
    optimizer.step()
    cs.strip()
    before = model.conv1.weight.detach().clone()
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    assert not torch.equal(model.conv1.weight, before)


@pytest.mark.parametrize("mask_init", [0.0, -0.3, 1.0])
def test_mask_scale_folds_exactly(mask_init):
    model = seeded(ConvNet).eval()
    dense = model(x)
    cs = prunus.ContinuousSparsification(model, steps=5, select="all", mask_init=mask_init)
    torch.testing.assert_close(model(x), dense, atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        for gate in cs.gates.values():
            gate.score.add_(torch.randn_like(gate.score))
    hard = hard_output(model, x)
    ticket = cs.ticket("current")
    weight = plain_tensors(model)["conv1.weight"].detach().clone()
    kept = cs.mask()["conv1.weight"]
    cs.strip()
    assert torch.equal(model(x), hard)
    scale = 1 + torch.tensor(-mask_init, dtype=torch.float64).exp().item()
    assert torch.equal(model.conv1.weight, torch.where(kept, weight, 0.0) * scale)
    assert torch.equal(ticket.apply(seeded(ConvNet, 1)).eval()(x), hard)


def test_without_mask_scale_the_mask_is_the_paper_s():
    model = seeded(mlp).eval()
    weight = model[0].weight.detach().clone()
    cs = prunus.ContinuousSparsification(
        model, steps=5, select="all", mask_init=0.7, mask_scale="none"
    )
    soft = torch.sigmoid(torch.tensor(0.7))
    torch.testing.assert_close(model[0].weight, soft * weight)
    with cs.hard():
        assert torch.equal(model[0].weight, weight)
    cs.strip()
    assert torch.equal(model[0].weight, weight)


# Other parametrizations


def test_other_parametrizations_are_kept_and_rewound():
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    )
    cs = prunus.ContinuousSparsification(model, steps=5, rewind_step=0)
    saved = {n: p.detach().clone() for n, p in model.named_parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    cs.rewind()
    for name, parameter in model.named_parameters():
        if "score" not in name:
            assert torch.equal(parameter, saved[name]), name
    cs.strip()
    assert nn.utils.parametrize.is_parametrized(model[1], "weight")


# Copies


@pytest.mark.parametrize("build", [ConvNet, TiedTransformer, lstm, gru])
@pytest.mark.parametrize("moment", ["attached", "forward", "backward", "moved", "hardened"])
@pytest.mark.parametrize("leave", [prunus.strip, prunus.remove])
@pytest.mark.parametrize("first", ["copy", "original"])
def test_copies_do_not_share_anything(build, moment, leave, first):
    batch = {ConvNet: x, TiedTransformer: tokens()}.get(build)
    batch = images(3, 5, 4)() if batch is None else batch
    model = seeded(build).eval()
    cs = attach(model, penalty=1e-3)
    if moment == "hardened":
        cs.harden()
    output = None if moment == "attached" else model(batch)
    if moment == "backward":
        output.sum().backward()
    if moment == "moved":
        model.to(torch.float64).to(torch.float32)
    clone = copy.deepcopy(model)
    expected = hard_output(model, batch)
    assert torch.equal(hard_output(clone, batch), expected)
    changed, kept = (clone, model) if first == "copy" else (model, clone)
    leave(changed)
    changed(batch)
    assert torch.equal(hard_output(kept, batch), expected)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.zero_()
    assert torch.equal(hard_output(kept, batch), expected)
    if moment == "forward" and first == "copy":
        output.sum().backward()  # the original's graph is whole
    prunus.strip(kept)
    assert torch.equal(kept(batch), expected)
    buffer = io.BytesIO()
    torch.save(kept, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(batch), expected)


@pytest.mark.parametrize("build", [lstm, gru])
def test_a_recurrent_layer_stripped_right_after_a_copy_can_be_saved(build):
    batch, model = images(3, 5, 4)(), seeded(build).eval()
    attach(model)
    copy.deepcopy(model)
    prunus.strip(model)
    clone = copy.deepcopy(model)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert all(w is getattr(model.rnn, n) for n, w in names_and_weights(model.rnn))
    assert torch.equal(loaded(batch), model(batch))
    assert torch.equal(clone(batch), model(batch))


def names_and_weights(rnn):
    return zip(rnn._flat_weights_names, rnn._flat_weights, strict=True)


def test_a_method_can_be_copied_with_its_model():
    model = seeded(ConvNet).eval()
    cs = attach(model, rewind_step=0)
    twin = copy.deepcopy(cs)
    assert twin.model is not model
    assert twin.mask() == cs.mask()
    expected = hard_output(model, x)
    twin.step()
    assert (twin.t, cs.t) == (1, 0)
    assert twin.temperature > cs.temperature == 1.0
    assert torch.equal(hard_output(twin.model, x), expected)
    twin.strip()
    assert torch.equal(twin.model(x), expected)
    assert torch.equal(hard_output(model, x), expected)
    cs.step()


# Tied weights in files


def test_tied_weights_are_saved_once():
    from safetensors.torch import load, save

    model = seeded(TiedTransformer)
    cs = attach(model)
    state = model.state_dict()
    assert len({t.data_ptr() for t in state.values()}) == len(state)
    bytes_ = save(state)  # raises where tensors share memory
    twin = seeded(TiedTransformer, 1)
    attach(twin)
    twin.load_state_dict(load(bytes_))
    batch = tokens()
    assert torch.equal(twin(batch), model(batch))
    assert prunus.Mask.of(twin) == cs.mask()
    copied = copy.deepcopy(twin)
    assert list(copied.state_dict()) == list(state)
    copied.load_state_dict(state)
    assert len(cs.strip().state_dict()) == len(seeded(TiedTransformer).state_dict())


def test_a_state_that_has_them_twice_loads_too():
    model = seeded(TiedTransformer)
    attach(model)
    state = model.state_dict()
    name = next(k for k in state if k.endswith("parametrizations.weight.original"))
    twin = seeded(TiedTransformer, 1)
    attach(twin)
    tied = next(c for c in prunus.candidates(seeded(TiedTransformer)) if len(c.owners) > 1)
    first, second = (place.removesuffix(".weight") for place, _, _ in tied.owners)
    for key in list(state):
        if key.startswith(f"{first}.parametrizations"):
            state[second + key.removeprefix(first)] = state[key].clone()
    assert name in state
    twin.load_state_dict(state)
    assert torch.equal(twin(tokens()), model(tokens()))
