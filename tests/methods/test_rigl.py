"""RigL: densities by hand, one update by hand, and what always holds."""

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import prunus
from prunus.gates import GrowingGate, gated_parameters
from prunus.methods.rigl import erk_densities
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()


def test_erk_by_hand():
    # raw: (10 + 10) / 100 = 0.2 and (20 + 20) / 400 = 0.1; 50 = scale * (0.2 * 100 + 0.1 * 400)
    found = erk_densities({"a": (10, 10), "b": (20, 20)}, 0.1)
    assert found == pytest.approx({"a": 1 / 6, "b": 1 / 12})
    # with the kernel: (4 + 2 + 3 + 3) / 72 = 1 / 6
    found = erk_densities({"a": (4, 2, 3, 3), "b": (8, 9)}, 0.25)
    # 36 = scale * (12 + 17)
    assert found == pytest.approx({"a": 36 / 29 / 6, "b": 36 / 29 * 17 / 72})


def test_erk_fills_small_layers():
    # raw 1 and 0.04: 0.25 of 2,504 is 626 = scale * (4 + 100), so a would get 6 times its weights;
    # it gets all 4, and b the other 622 of 2,500
    found = erk_densities({"a": (2, 2), "b": (50, 50)}, 0.25)
    assert found == pytest.approx({"a": 1.0, "b": 622 / 2500})
    assert erk_densities({"a": (2, 2), "b": (50, 50)}, 1.0) == {"a": 1.0, "b": 1.0}


def linear(**options):
    """Six weights, 2x3, of which the first row is present."""
    model = nn.Linear(3, 2, bias=False)
    rigl = prunus.RigL(model, select="all", target_density=0.5, **options)
    with torch.no_grad():
        rigl.gates["weight"].present.copy_(torch.tensor([[1, 1, 1], [0, 0, 0]]))
        weights = torch.tensor([[0.1, -0.3, 0.2], [7.0, 8.0, 9.0]])
        gated_parameters(model)["weight"][1].copy_(weights)
    return rigl


def backward(rigl, gradient):
    """Make `gradient` that of the network's weight."""
    (rigl.model.weight * torch.tensor(gradient)).sum().backward()


def test_one_update_by_hand():
    # t = 1 of T_end = 2: 0.8 / 2 * (1 + cos(pi / 2)) = 0.4 of 3 is 1
    rigl = linear(steps=2, end=1.0, every=1, fraction=0.8)
    backward(rigl, [[0.0, 9.0, 9.0], [0.5, -2.0, 1.0]])
    rigl.step()
    # the smallest, 0.1, is dropped; the largest absent gradient is -2; its weight starts at zero
    assert rigl.mask()["weight"].int().tolist() == [[0, 1, 1], [0, 1, 0]]
    weight = gated_parameters(rigl.model)["weight"][1]
    assert torch.equal(weight, torch.tensor([[0.1, -0.3, 0.2], [7.0, 0.0, 9.0]]))


def test_a_weight_that_leaves_may_come_back_at_once_and_keeps_its_value():
    rigl = linear(steps=2, end=1.0, every=1, fraction=0.8)
    backward(rigl, [[3.0, 0.0, 0.0], [0.5, -2.0, 1.0]])
    rigl.step()
    assert rigl.mask()["weight"].int().tolist() == [[1, 1, 1], [0, 0, 0]]
    assert gated_parameters(rigl.model)["weight"][1][0, 0].item() == pytest.approx(0.1)


def test_the_gradients_of_several_backward_passes_add_up():
    rigl = linear(steps=2, end=1.0, every=1, fraction=0.8)
    backward(rigl, [[0.0, 0.0, 0.0], [0.5, -2.0, 1.5]])
    backward(rigl, [[0.0, 0.0, 0.0], [0.5, 2.0, 0.0]])
    rigl.step()
    assert rigl.mask()["weight"].int().tolist() == [[0, 1, 1], [0, 0, 1]]


def test_when_the_mask_is_updated():
    rigl = linear(steps=12, end=0.75, every=3)
    masks = []
    for step in range(1, 13):
        collecting = rigl.gates["weight"].dense_gradient
        assert collecting is None, "nothing is collected before a backward pass"
        backward(rigl, [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
        if rigl.gates["weight"].dense_gradient is not None:
            masks.append(step)
        rigl.step()
    assert masks == [3, 6], "every third step below 9, and dense gradients at no other"


def test_about_a_hundred_updates_a_round():
    assert linear(steps=4000).interval == 30
    assert linear(steps=20).interval == 1


def test_listening_changes_neither_outputs_nor_the_gradient_of_the_weight():
    w = torch.randn(2, 3, requires_grad=True)
    gate = GrowingGate(w)
    gate.present.copy_(torch.tensor([[1, 0, 1], [0, 1, 0]]))
    factors = torch.randn(2, 3)
    found = []
    for listening in (False, True):
        gate.listen(w if listening else None)
        out = gate(w)
        (gradient,) = torch.autograd.grad((out * factors).sum(), w, retain_graph=True)
        found.append((out, gradient))
    (out * factors).sum().backward()
    assert torch.equal(gate.dense_gradient, factors)
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


def train(rigl, steps):
    optimizer = torch.optim.SGD(rigl.param_groups(0.1, weight_decay=1e-2), momentum=0.9)
    for _ in range(steps):
        rigl.model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        before = copy.deepcopy(rigl.mask())
        rigl.step()
        yield before


@settings(max_examples=15)
@given(
    density=st.floats(0.05, 1.0),
    fraction=st.floats(0.0, 0.9),
    layers=st.sampled_from(["erk", "uniform"]),
)
def test_the_density_is_constant_and_what_comes_is_zero(density, fraction, layers):
    model = seeded(ConvNet)
    rigl = prunus.RigL(
        model, steps=8, target_density=density, fraction=fraction, layers=layers, every=2,
        select="all",
    )  # fmt: skip
    total = rigl.mask().total
    per_layer = {layer.name: layer.kept for layer in rigl.mask().layers}
    for before in train(rigl, 8):
        mask = rigl.mask()
        assert mask.kept == round(density * total)
        assert {layer.name: layer.kept for layer in mask.layers} == per_layer
        for name, (_, weight) in gated_parameters(model).items():
            assert not weight[mask[name] & ~before[name]].any()
    rigl.end_round()
    assert rigl.ticket().mask.kept == round(density * total)


def test_masks_move_and_the_seed_decides():
    def found(seed):
        rigl = prunus.RigL(
            seeded(ConvNet), steps=8, target_density=0.3, every=2, select="all", seed=seed
        )
        first = copy.deepcopy(rigl.mask())
        list(train(rigl, 6))
        return first, copy.deepcopy(rigl.mask())

    first, last = found(0)
    assert first != last
    assert found(0) == (first, last)
    assert found(1)[0] != first


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"fraction": 1.0}, "fraction=1.0: .*below 1"),
        ({"end": 0.0}, "end=0.0: "),
        ({"every": 0}, "every=0: there is at least one step"),
        ({"layers": "random"}, "layers='random' is not 'erk' or 'uniform'"),
        ({"target_density": 0.0}, "target_density=0.0: "),
        ({"target_density": 1e-4}, "less than one weight"),
    ],
)
def test_bad_settings(bad, message):
    model = seeded(ConvNet)
    names = list(model.state_dict())
    with pytest.raises(prunus.SettingError, match=message):
        prunus.RigL(model, steps=4, **bad)
    assert list(model.state_dict()) == names


def test_from_the_command_line(cli, tmp_path: Path):
    status, output, errors = cli(
        "prune", "--task", "digits/digits_convnet", "--method", "rigl", "--epochs", 2,
        "--target-density", 0.2, "--set", "data.train_images=200",
    )  # fmt: skip
    assert status == 0, errors
    assert "20.0" in output
    [ticket] = tmp_path.glob("runs/*rigl-prune*/tickets/fine-tuning.safetensors")
    assert prunus.Ticket.load(ticket).mask.density == pytest.approx(0.2, abs=1e-4)
