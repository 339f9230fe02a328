"""SNIP and SynFlow, which decide before training: scores by hand, and when they are taken."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import prunus
from prunus.errors import SearchWarning
from support.models import ConvNet, TiedTransformer, images, seeded, tokens

x = images(4, 2, 5, 5)()


def linear(weight):
    model = nn.Linear(len(weight[0]), len(weight), bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(weight))
    return model


# SNIP


def on_linear(gradients, **settings):
    """Four weights with these gradients of the loss, one list for each step."""
    snip = prunus.SNIP(linear([[4.0, -3.0, 2.0, 1.0]]), steps=9, select="all", **settings)
    for gradient in gradients:
        (snip.model.weight * torch.tensor(gradient)).sum().backward()
        snip.step()
    return snip


def test_snip_by_hand():
    # |g * w| = 4, 6, 2, 5
    mask = on_linear([[1.0, 2.0, -1.0, 5.0]], target_density=0.5).mask()
    assert mask["weight"].tolist() == [[False, True, False, True]]


def test_the_scores_are_those_of_the_weights_before_the_step():
    snip = on_linear([], target_density=0.25)
    optimizer = torch.optim.SGD(snip.param_groups(lr=10.0))
    (snip.model.weight * torch.tensor([1.0, 2.0, -1.0, 5.0])).sum().backward()
    optimizer.step()  # the weights are now -6, -23, 12, -49
    optimizer.zero_grad()
    snip.step()
    assert snip.mask()["weight"].tolist() == [[False, True, False, False]]


def test_the_gradients_of_several_batches_and_passes_are_added_before_the_absolute_value():
    # The second weight's gradients cancel; g * w = 8, 0, -4, 5
    snip = on_linear([[1.0, 2.0, -1.0, 3.0], [1.0, -2.0, -1.0, 2.0]], batches=2, target_density=0.5)
    assert snip.mask()["weight"].tolist() == [[True, False, False, True]]


def test_the_mask_is_final_after_the_first_batches():
    snip = on_linear([[1.0, 2.0, -1.0, 5.0]], target_density=0.5)
    mask = snip.mask()
    (snip.model.weight * torch.tensor([9.0, 0.0, 9.0, 0.0])).sum().backward()
    snip.step()
    assert snip.mask() == mask == snip.end_round()


def test_without_gradients_there_is_a_warning():
    snip = prunus.SNIP(linear([[4.0, -3.0]]), steps=2, select="all", target_density=0.5)
    with pytest.warns(SearchWarning, match="no gradient came in the first 1 steps"):
        snip.step()
    assert snip.mask().density == 1.0


def test_scores_are_saved_while_they_are_gathered():
    snip = on_linear([[1.0, 2.0, -1.0, 3.0]], batches=2, target_density=0.5)
    other = on_linear([], batches=2, target_density=0.5)
    other.load_state_dict(snip.state_dict())
    for method in (snip, other):
        (method.model.weight * torch.tensor([1.0, -2.0, -1.0, 2.0])).sum().backward()
        method.step()
    assert snip.mask() == other.mask()
    assert snip.state_dict()["scores"] == {}


# SynFlow


def test_synflow_by_hand():
    """Two linear layers: the score of a weight is the sum of all paths through it."""
    layers = linear([[1.0, -2.0], [3.0, 0.5]]), nn.ReLU(), linear([[-4.0, 1.0]])
    synflow = prunus.SynFlow(
        nn.Sequential(*layers), steps=2, select="all", target_density=0.5, iterations=1
    )
    synflow.model(torch.randn(7, 2))
    assert synflow.mask()["0.weight"].tolist() == [[True, True], [False, False]]
    assert synflow.mask()["2.weight"].tolist() == [[True, False]]
    synflow.set_mask({n: torch.ones_like(m) for n, m in synflow.mask().items()})
    scores = synflow._scores((torch.ones(1, 2, dtype=torch.float64),), {})
    # |w2| * |w1|: 4*1, 4*2, 1*3, 1*0.5; of the second layer: 4*(1+2), 1*(3+0.5)
    assert scores["0.weight"].tolist() == [[4.0, 8.0], [3.0, 0.5]]
    assert scores["2.weight"].tolist() == [[12.0, 3.5]]


def test_each_cut_scores_anew():
    """Of two equal halves of a network one is left, where a single cut would tear both."""
    model = nn.Sequential(linear([[1.0, 0.0], [0.0, 0.99]]), linear([[0.5, 0.0], [0.0, 0.52]]))
    synflow = prunus.SynFlow(model, steps=2, select="all", target_density=0.25, iterations=20)
    model(torch.ones(1, 2))
    assert synflow.mask().kept == 2
    assert (model[1].weight @ model[0].weight).any(), "a path is left"


def test_no_layer_is_cut_off_where_magnitude_would():
    model = seeded(ConvNet)
    with torch.no_grad():
        model.conv2.weight.mul_(1e-3)
    synflow = prunus.SynFlow(model, steps=2, select="all", target_density=0.05)
    model(x)
    assert all(layer.kept for layer in synflow.mask().layers)
    assert synflow.mask().kept == round(0.05 * synflow.mask().total)


@pytest.mark.parametrize("training", [True, False])
def test_synflow_leaves_the_network_as_it_was(training):
    model = seeded(ConvNet).train(training)
    before = copy.deepcopy(model.state_dict())
    synflow = prunus.SynFlow(model, steps=2, select="all", target_density=0.2, iterations=3)
    modes = [module.training for module in model.modules()]
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        synflow.decide_for((x,), {})
    assert 0 < synflow.mask().density < 0.3
    assert [module.training for module in model.modules()] == modes
    synflow.remove()
    assert all(torch.equal(before[n], tensor) for n, tensor in model.state_dict().items())
    assert not model._forward_pre_hooks


def test_the_mask_does_not_depend_on_the_data_and_is_decided_once():
    masks = []
    for batch in (x, 5 * x[:2]):
        synflow = prunus.SynFlow(seeded(ConvNet), steps=4, select="all", target_density=0.2)
        synflow.model(batch)
        masks.append(synflow.mask())
        for p in synflow.model.parameters():
            p.data.normal_()
        synflow.model(batch)
        synflow.step()
        synflow.model(batch)
        assert synflow.mask() == masks[-1] == synflow.end_round()
    assert masks[0] == masks[1]


def test_synflow_on_tokens():
    model = seeded(TiedTransformer)
    synflow = prunus.SynFlow(model, steps=2, select="linear", target_density=0.3, iterations=3)
    F.cross_entropy(model(tokens()).flatten(0, 1), tokens().flatten()).backward()
    assert synflow.mask().density == pytest.approx(0.3, abs=0.01)


def test_a_copy_decides_for_itself():
    synflow = prunus.SynFlow(seeded(ConvNet), steps=4, select="all", target_density=0.2)
    twin = copy.deepcopy(synflow)
    synflow.model(x)
    assert synflow.mask().density < 0.3 and twin.mask().density == 1.0
    twin.model(x)
    assert twin.mask() == synflow.mask()


def test_synflow_in_a_compiled_model():
    torch._dynamo.reset()
    synflow = prunus.SynFlow(seeded(ConvNet), steps=4, select="all", target_density=0.2)
    other = prunus.SynFlow(seeded(ConvNet), steps=4, select="all", target_density=0.2)
    compiled = torch.compile(synflow.model, backend="eager")
    assert torch.allclose(compiled(x), other.model(x), atol=1e-6)
    assert synflow.mask() == other.mask() and synflow.mask().density < 0.3


@pytest.mark.parametrize("name", ["snip", "synflow"])
def test_from_the_command_line(cli, tmp_path, name):
    status, output, errors = cli(
        "prune", "--task", "digits/digits_convnet", "--method", name, "--epochs", 2,
        "--target-density", 0.2, "--set", "data.train_images=200",
    )  # fmt: skip
    assert status == 0, errors
    assert "20.0" in output
    [ticket] = tmp_path.glob(f"runs/*{name}-prune*/tickets/fine-tuning.safetensors")
    assert prunus.Ticket.load(ticket).mask.density == pytest.approx(0.2, abs=1e-4)


@pytest.mark.parametrize(
    ("method", "bad", "message"),
    [
        ("snip", {"batches": 0}, "batches=0: at least one batch"),
        ("synflow", {"iterations": 0}, "iterations=0: at least one cut"),
        ("snip", {"target_density": 0}, "target_density=0: "),
    ],
)
def test_bad_settings(method, bad, message):
    with pytest.raises(prunus.SettingError, match=message):
        prunus.METHODS[method](seeded(ConvNet), steps=10, **bad)
