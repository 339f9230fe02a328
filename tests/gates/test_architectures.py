"""The whole life of Continuous Sparsification, on models of many kinds."""

import copy
import io

import pytest
import torch
from torch import nn

import prunus
from support.models import ZOO, seeded


def train(model, method, x, optimizer, steps=2):
    model.train()
    for _ in range(steps):
        (model(x).square().mean() + method.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        method.step()


def attach(model):
    return prunus.ContinuousSparsification(model, steps=4, penalty=1e-4, select="all")


def evaluate(model, x):
    # With gradients enabled: under no_grad PyTorch's GRU takes another kernel, which rounds
    # differently, when its weights do not require gradients (a plain GRU does so as well).
    return model.eval()(x).detach()


@pytest.mark.parametrize("name", ZOO)
def test_attach_train_copy_save_load_harden_strip(name, tmp_path):
    build, make_input = ZOO[name]
    x = make_input()
    model, untouched = seeded(build), seeded(build)
    before = evaluate(model, x)
    cs = attach(model)
    torch.testing.assert_close(evaluate(model, x), before)
    optimizer = torch.optim.SGD(cs.param_groups(0.05, score_lr=5.0), momentum=0.9)
    train(model, cs, x, optimizer)
    assert 0 < cs.mask().density < 1
    soft = evaluate(model, x)

    clone = copy.deepcopy(model)
    assert torch.equal(evaluate(clone, x), soft)

    loaded = seeded(build, seed=1)
    other = attach(loaded)
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "method": cs.state_dict()}, saved)
    saved.seek(0)
    state = torch.load(saved, weights_only=True)
    loaded.load_state_dict(state["model"])
    other.load_state_dict(state["method"])
    assert torch.equal(evaluate(loaded, x), soft)
    assert other.mask() == cs.mask()

    with cs.hard():
        hard = evaluate(model, x)
    assert not torch.equal(hard, soft)
    mask = cs.harden()
    assert torch.equal(evaluate(model, x), hard)

    path = cs.ticket("current").save(tmp_path / "x.ticket.safetensors")
    retrained = prunus.Ticket.load(path).apply(seeded(build, seed=2))
    assert torch.equal(evaluate(retrained, x), hard)
    assert prunus.Mask.of(retrained) == mask

    prunus.strip(clone)
    assert torch.equal(evaluate(clone, x), hard)
    assert torch.equal(evaluate(model, x), hard)
    cs.strip()
    for stripped in (model, clone, prunus.strip(retrained)):
        assert torch.equal(evaluate(stripped, x), hard)
        assert list(stripped.state_dict()) == list(untouched.state_dict())
        ours, theirs = stripped.named_modules(), untouched.named_modules()
        assert [(n, type(m)) for n, m in ours] == [(n, type(m)) for n, m in theirs]
        ours, theirs = stripped.named_parameters(), untouched.named_parameters()
        assert [(n, p.shape) for n, p in ours] == [(n, p.shape) for n, p in theirs]
    for parameter, kept in mask.items():
        assert not model.get_parameter(parameter)[~kept].any()

    buffer = io.BytesIO()
    torch.save(model, buffer)
    assert b"prunus" not in buffer.getvalue()
    buffer.seek(0)
    assert torch.equal(evaluate(torch.load(buffer, weights_only=False), x), hard)


@pytest.mark.parametrize("name", ZOO)
def test_remove_gives_the_dense_model_back_bit_for_bit(name):
    build, make_input = ZOO[name]
    x, model, untouched = make_input(), seeded(build), seeded(build)
    before = evaluate(model, x)
    cs = attach(model)
    evaluate(model, x)
    cs.remove()
    assert torch.equal(evaluate(model, x), before)
    for (n, p), (m, q) in zip(model.named_parameters(), untouched.named_parameters(), strict=True):
        assert n == m
        assert torch.equal(p, q)
    assert [type(m) for m in model.modules()] == [type(m) for m in untouched.modules()]


@pytest.mark.parametrize("name", ["transformer", "vit", "lstm"])
def test_every_gate_gets_gradients(name):
    build, make_input = ZOO[name]
    model = seeded(build)
    cs = attach(model)
    model(make_input()).square().mean().backward()
    for gate in cs.gates.values():
        assert gate.score.grad is not None
        assert gate.score.grad.abs().max() > 0


def test_tied_weights_have_one_gate_and_stay_tied():
    model = seeded(ZOO["transformer"].build)
    cs = attach(model)
    assert "embedding.weight" in cs.gates
    assert "head.weight" not in cs.gates
    assert torch.equal(model.head.weight, model.embedding.weight)
    cs.remove()
    assert model.head.weight is model.embedding.weight


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_fast_path_of_the_transformer_encoder_uses_the_gates(hard, nested):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
    cs = attach(model)
    with torch.no_grad():
        for gate in cs.gates.values():
            gate.score.normal_()
    if hard:
        cs.harden()
    x = torch.randn(2, 5, 8)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    slow = model.train()(x, src_key_padding_mask=padding)
    called = []
    layer_forward = torch._transformer_encoder_layer_fwd

    def spy(*args, **kwargs):
        called.append(True)
        return layer_forward(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(torch, "_transformer_encoder_layer_fwd", spy)
        fast = model.eval()(x, src_key_padding_mask=padding)
    assert called, "the fast path was not taken"
    torch.testing.assert_close(fast[~padding], slow[~padding], atol=1e-5, rtol=1e-4)


def test_weights_may_be_frozen_to_learn_a_supermask():
    model = seeded(ZOO["convnet"].build)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    cs = attach(model)
    before = {n: p.clone() for n, p in prunus.gates.plain_tensors(model).items() if "bn" not in n}
    train(model, cs, ZOO["convnet"].input(), torch.optim.SGD(cs.param_groups(0.1), momentum=0.9))
    assert all(gate.score.abs().min() > 0 for gate in cs.gates.values())
    after = prunus.gates.plain_tensors(model)
    assert all(torch.equal(after[n], t) for n, t in before.items())
