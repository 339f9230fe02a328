"""What users do to a model after attaching: wrapped layers, other dtypes, averages, assignments."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import prunus
from prunus.errors import SearchWarning
from prunus.gates import Gate
from support.models import ConvNet, images, seeded

x = images(8, 2, 5, 5)()

METHODS = {
    "cs": {"mask_init": 0.01, "rewind": True},
    "cs with a budget": {"target_density": 0.4},
    "imp": {"rate": 0.3},
    "gmp": {"target_density": 0.4},
    "l0": {"samples": 1},
    "netslim": {"target_density": 0.4},
    "str": {},
    "dnw": {"target_density": 0.4},
    "rigl": {"target_density": 0.4, "every": 2},
}


def attach(name="cs with a budget", model=None, **more):
    settings = {"steps": 6, "select": "all", "rewind_step": 2, **METHODS[name], **more}
    cls = prunus.METHODS[name.partition(" ")[0]]
    return cls(seeded(ConvNet) if model is None else model, **settings)


def train(method, steps=6, after=lambda: None, batch=x):
    torch.manual_seed(9)  # for methods that draw
    optimizer = torch.optim.AdamW(method.param_groups(0.01))
    for _ in range(steps):
        (method.model(batch).float().square().mean() + method.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        method.step()
        after()
    return method


class Adapted(nn.Module):
    """As adapters do it (LoRA): the layer becomes `base_layer`, with something small beside it."""

    def __init__(self, layer):
        super().__init__()
        self.base_layer = layer
        self.gain = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return (1 + self.gain) * self.base_layer(x)


def compiled(layer):
    return torch.compile(layer, backend="eager")


# Other paths to the same modules


@pytest.mark.parametrize("wrap", [compiled, checkpoint_wrapper, Adapted])
@pytest.mark.parametrize("name", METHODS)
def test_a_layer_may_be_wrapped_after_attaching(name, wrap):
    plain, method = train(attach(name)), attach(name)
    names = list(method.mask())
    method.model.conv1 = wrap(method.model.conv1)
    method.model.fc = wrap(method.model.fc)
    train(method)
    assert list(method.mask()) == names
    early = method.ticket()
    assert early.weights.keys() == plain.ticket().weights.keys()
    method.rewind()
    method.harden()
    assert list(method.ticket("current").mask) == names
    prunus.Ticket(early.mask, early.weights, early.manifest).apply(seeded(ConvNet, 1))
    if wrap is not Adapted:  # whose gain has learned
        assert method.mask() == plain.mask()
    mask = method.mask()
    method.strip()
    assert not [m for m in method.model.modules() if isinstance(m, Gate)]
    for candidate in method.selection:
        weight = getattr(candidate.module, candidate.owners[0][2])
        assert isinstance(weight, nn.Parameter) and not weight[~mask[candidate.name]].any()


@pytest.mark.parametrize("name", ["cs", "l0"])
def test_scores_that_were_frozen_after_attaching_are_an_error_before_training(name):
    # As get_peft_model does it with every parameter of a model.
    method = attach(name)
    method.model.requires_grad_(False)
    method.model.fc = Adapted(method.model.fc)
    with pytest.raises(prunus.AttachError, match=r"conv1\.weight, .* do not require gradients"):
        train(method)


def test_a_state_is_that_of_the_plain_model():
    method = train(attach("cs"), steps=3)
    state = method.state_dict()
    method.model.conv1 = Adapted(method.model.conv1)
    assert method.state_dict()["rewind_weights"].keys() == state["rewind_weights"].keys()
    method.load_state_dict(state)


# Modules that are no longer there


def test_a_module_that_was_replaced_is_an_error_before_training():
    method = attach()
    method.model.fc = nn.Linear(4, 3)
    with pytest.raises(prunus.AttachError, match=r"fc\.weight: the module was replaced after"):
        train(method)


def test_and_a_warning_after_it():
    method = train(attach())
    method.model.fc = nn.Linear(4, 3)
    with pytest.warns(SearchWarning, match=r"fc\.weight: the module was replaced after"):
        method.harden()


def test_a_gated_weight_cannot_be_assigned():
    method = attach()
    with pytest.raises(prunus.AttachError, match="cannot be replaced by another tensor"):
        method.model.fc.weight = torch.zeros(3, 4)
    train(method)


class Pretrained(nn.Module):
    """As models of transformers name it."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5)

    def resize_token_embeddings(self, size):
        self.words = nn.Embedding(size, 4)

    def tie_weights(self):
        self.head.weight = self.words.weight


@pytest.mark.parametrize("leave", ["strip", "remove"])
@pytest.mark.parametrize("wrap", [nn.Identity, nn.Sequential])
def test_embeddings_are_tied_and_resized_before_attaching(wrap, leave):
    inner = Pretrained()
    model = inner if wrap is nn.Identity else wrap(inner)
    method = attach(model=model)
    for change in (inner.tie_weights, lambda: inner.resize_token_embeddings(6)):
        with pytest.raises(prunus.AttachError, match=r"\(\) while the model is under a method"):
            change()
    with pytest.raises(prunus.AttachError, match=r"tie_weights\(\) while"):
        copy.deepcopy(inner).tie_weights()
    getattr(method, leave)()
    inner.tie_weights()
    inner.resize_token_embeddings(6)
    assert inner.words.num_embeddings == 6
    assert not {"tie_weights", "resize_token_embeddings"} & vars(inner).keys()


def test_embeddings_without_a_gate_may_be_tied():
    model = Pretrained()
    model.body = nn.Linear(4, 4)
    attach(model=model, select="body.weight")
    model.tie_weights()
    assert model.head.weight is model.words.weight
    with pytest.raises(prunus.AttachError, match="resize_token_embeddings"):
        model.resize_token_embeddings(6)


# 16 bits


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_in_bfloat16_scores_stay_in_float32(name, before):
    model = seeded(ConvNet)
    if before:
        model = model.to(torch.bfloat16)
    method = attach(name, model)
    if not before:
        model.to(torch.bfloat16)
    assert {w.dtype for w in method.weights.values()} == {torch.bfloat16}
    for gate in method.gates.values():
        tensors = [t for t in gate.state_dict().values() if t.is_floating_point()]
        assert {t.dtype for t in tensors} <= {torch.float32}
    train(method, batch=x.to(torch.bfloat16))
    mask = method.harden()
    if "target_density" in METHODS[name]:
        assert mask.kept == pytest.approx(0.4 * mask.total, abs=2)
    assert method.strip()(x.to(torch.bfloat16)).dtype == torch.bfloat16


def test_no_bit_of_a_score_is_lost():
    method = attach("cs")
    gate = method.gates["conv1.weight"]
    with torch.no_grad():
        gate.score.normal_()
    score, before = gate.score, gate.score.clone()
    method.model.half().to(torch.bfloat16)
    assert gate.score is score and torch.equal(score, before)
    method.model.double()
    assert gate.score.dtype == torch.float64
    method.model.float()
    assert torch.equal(gate.score, before)


def test_a_mask_that_is_held_moves_with_the_model():
    method = train(attach())
    method.commit()
    method.model.to("meta")
    assert method.gates["fc.weight"].round_mask.device.type == "meta"


# Averages of weights


def averaged(model, **options):
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.7), **options)


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("hardened", [False, True])
def test_an_average_meets_the_target(hardened, use_buffers):
    method = attach()
    ema = averaged(method.model, use_buffers=use_buffers)
    train(method, after=lambda: ema.update_parameters(method.model))
    mask = method.harden() if hardened else method.commit()
    ema.update_parameters(method.model)  # a mask that is held disturbs nothing
    assert prunus.Mask.of(ema.module).kept != mask.kept, "average scores, another density"
    assert method.give_mask(ema) is ema
    assert prunus.Mask.of(ema.module) == mask
    with prunus.hard(ema.module):
        expected = ema(x)
    prunus.strip(ema.module)
    assert torch.equal(ema(x), expected)
    assert not ema.module.conv1.weight[~mask["conv1.weight"]].any()
    assert method.mask() == mask


def test_a_copy_is_given_a_mask_of_its_own():
    method = train(attach())
    twin = method.give_mask(copy.deepcopy(method.model))
    before = prunus.Mask.of(twin)
    with torch.no_grad():
        for gate in method.gates.values():
            gate.score.neg_()
    assert prunus.Mask.of(twin) == before != method.mask()


def test_another_model_is_no_copy():
    with pytest.raises(prunus.AttachError, match="this ConvNet is no copy of the model"):
        attach().give_mask(ConvNet())
