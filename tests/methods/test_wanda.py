"""Wanda: scores and rows by hand, whose inputs are measured, networks that are trained already."""

import copy
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import prunus
from prunus.errors import SearchWarning
from prunus.gates import InputLayout, Watcher
from support.models import ZOO, ConvNet, images, seeded

x = images(4, 2, 5, 5)()


def on_linear(weight, inputs, **settings):
    """A linear layer with these weights that has seen these inputs, one batch for each step."""
    model = nn.Linear(len(weight[0]), len(weight), bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(weight))
    settings = {"steps": len(inputs), "target_density": 0.5, "select": "all", **settings}
    wanda = prunus.Wanda(model, **settings)
    for batch in inputs:
        model(torch.tensor(batch))
        wanda.step()
    return wanda


WEIGHT = [[1.0, -2.0, 3.0, 4.0], [8.0, 7.0, 0.1, -0.2]]
# Norms of the inputs: sqrt(9 + 16) = 5, 1, 2, 1
INPUTS = [[[3.0, 1.0, 0.0, 0.0]], [[4.0, 0.0, 2.0, 1.0]]]
# So the scores are [[5, 2, 6, 4], [40, 7, 0.2, 0.2]]


def test_weights_compete_with_those_of_their_output():
    mask = on_linear(WEIGHT, INPUTS).commit()
    assert mask["weight"].int().tolist() == [[1, 0, 1, 0], [1, 1, 0, 0]]


def test_weights_compete_in_their_layer():
    mask = on_linear(WEIGHT, INPUTS, scope="layer", target_density=3 / 8).commit()
    assert mask["weight"].int().tolist() == [[0, 0, 1, 0], [1, 1, 0, 0]]


def test_only_the_last_batches_are_measured():
    wanda = on_linear(WEIGHT, [[[0.0, 99.0, 0.0, 0.0]], *INPUTS], batches=2)
    assert wanda.gates["weight"].energy.tolist() == [25.0, 1.0, 4.0, 1.0]


def test_passes_with_the_hard_mask_do_not_count():
    wanda = on_linear(WEIGHT, INPUTS)
    with wanda.hard():
        wanda.model(torch.full((1, 4), 9.0))
    wanda.step()
    assert wanda.gates["weight"].energy.tolist() == [25.0, 1.0, 4.0, 1.0]


def test_rows_are_rounded_so_that_all_together_have_the_density():
    # 0.3 of rows of 3 ends at 0.9, 1.8, 2.7, 3.6, 4.5: rounded 1, 2, 3, 4, 4
    weight = [[1.0, 2.0, 3.0]] * 5
    mask = on_linear(weight, [[[1.0, 1.0, 1.0]]], target_density=0.3).commit()
    assert mask["weight"].sum(1).tolist() == [1, 1, 1, 1, 0]
    assert mask["weight"][:4, 2].all()


@pytest.mark.parametrize("density", [0.03, 0.1, 0.37, 0.9])
def test_the_density_is_met_over_layers_and_rows_of_all_lengths(density):
    model = seeded(ConvNet)
    wanda = prunus.Wanda(model, steps=1, target_density=density, select="all")
    model(x)
    wanda.step()
    mask = wanda.harden()
    assert mask.kept == round(density * mask.total)


# Convolutions


def test_a_channel_is_an_input_of_a_convolution():
    model = nn.Conv2d(2, 1, (1, 2), bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[[[4.0, 1.0]], [[2.0, 3.0]]]]))
    wanda = prunus.Wanda(model, steps=1, target_density=0.5, select="all")
    model(torch.tensor([[[[1.0, 0.0, 0.0]], [[2.0, 2.0, 1.0]]]]))  # norms 1 and 3
    wanda.step()
    # scores 4, 1 and 6, 9
    assert wanda.commit()["weight"].flatten().int().tolist() == [0, 0, 1, 1]


def test_groups_and_transposed_convolutions():
    plain = InputLayout(inputs=4, axis=-3, groups=2, inputs_first=False)
    weight = torch.arange(16).view(4, 2, 2, 1)  # outputs, inputs of a group, kernel
    values = torch.tensor([1, 10, 100, 1000])
    per_weight = plain.per_weight(values, weight)[:, :, 0, 0]
    assert per_weight.tolist() == [[1, 10], [1, 10], [100, 1000], [100, 1000]]
    assert plain.by_output(weight).tolist() == [
        [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15],
    ]  # fmt: skip

    transposed = InputLayout(inputs=4, axis=-3, groups=2, inputs_first=True)
    weight = torch.arange(12).view(4, 3, 1, 1)  # inputs, outputs of a group
    assert transposed.per_weight(values, weight).tolist() == [[[[v]]] for v in values.tolist()]
    # the first group has inputs 0 and 1, and three outputs
    assert transposed.by_output(weight).tolist() == [
        [0, 3], [1, 4], [2, 5], [6, 9], [7, 10], [8, 11],
    ]  # fmt: skip


class Conv1D(nn.Module):
    """As in transformers: a linear layer that stores its weight (inputs, outputs)."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(WEIGHT).T.contiguous())

    def forward(self, x):
        return x @ self.weight


def test_the_transposed_linear_layer_of_transformers():
    model = Conv1D()
    wanda = prunus.Wanda(model, steps=2, target_density=0.5, select="all")
    for batch in INPUTS:
        model(torch.tensor(batch))
        wanda.step()
    assert wanda.commit()["weight"].T.int().tolist() == [[1, 0, 1, 0], [1, 1, 0, 0]]


def test_layers_that_do_not_show_their_inputs_go_by_magnitude():
    model = nn.Embedding(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 6.0], [2.0, 5.0], [3.0, 4.0]]))
    wanda = prunus.Wanda(model, steps=1, target_density=0.5, select="all")
    model(torch.tensor([0, 0, 1]))
    wanda.step()
    assert wanda.commit()["weight"].int().tolist() == [[0, 1], [0, 1], [0, 1]]


def test_inputs_that_were_never_seen_are_worth_a_warning():
    wanda = prunus.Wanda(seeded(ConvNet), steps=100, batches=10, target_density=0.5, select="all")
    wanda.model(x)
    wanda.step()
    with pytest.warns(SearchWarning, match=r"no input of conv1.weight.* last 10 of 100 steps"):
        wanda.commit()


@pytest.mark.parametrize("kind", ZOO)
def test_networks_of_every_kind_that_are_trained_already(kind):
    model, batch = seeded(ZOO[kind].build), ZOO[kind].input()
    before = {n: p.clone() for n, p in model.named_parameters()}
    wanda = prunus.Wanda(model.eval(), steps=2, target_density=0.5, select="all")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", SearchWarning)  # what can be seen has been seen
        for _ in range(2):
            model(batch)
            wanda.step()
        mask = wanda.harden()
        assert mask.kept == round(0.5 * mask.total)
        wanda.strip()
    for name, kept in mask.items():
        assert torch.equal(model.get_parameter(name), torch.where(kept, before[name], 0.0))


def hooks(model):
    return [
        hook
        for module in model.modules()
        for hook in module._forward_pre_hooks.values()
        if isinstance(hook, Watcher)
    ]


@pytest.mark.parametrize("leave", ["strip", "remove"])
def test_no_hook_stays_behind(leave):
    wanda = prunus.Wanda(seeded(ConvNet), steps=1, select="all", target_density=0.5)
    wanda.model(x)
    wanda.step()
    copied = copy.deepcopy(wanda.model)
    assert len(hooks(copied)) == 3
    assert all(hook.gate is not wanda.gates["conv1.weight"] for hook in hooks(copied))
    assert not hooks(getattr(wanda, leave)())
    assert len(hooks(copied)) == 3
    assert not hooks(prunus.strip(copied))


def test_a_copy_of_the_model_measures_for_itself():
    wanda = prunus.Wanda(seeded(ConvNet), steps=2, select="all", target_density=0.5)
    twin = copy.deepcopy(wanda)
    wanda.model(x)
    wanda.step()
    twin.step()
    assert wanda.gates["conv1.weight"].energy.all()
    assert not twin.gates["conv1.weight"].energy.any()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"scope": "global"}, "scope='global' is not 'row' or 'layer'"),
        ({"batches": 0}, "batches=0: at least one batch"),
        ({"target_density": 1.5}, "target_density=1.5: "),
    ],
)
def test_bad_settings(bad, message):
    with pytest.raises(prunus.SettingError, match=message):
        prunus.Wanda(seeded(ConvNet), steps=4, **bad)


def test_from_the_command_line(cli, tmp_path: Path):
    status, output, errors = cli(
        "prune", "--task", "digits/digits_convnet", "--method", "wanda", "--epochs", 2,
        "--target-density", 0.2, "--set", "data.train_images=200", "--set", "method.batches=2",
    )  # fmt: skip
    assert status == 0, errors
    assert "20.0" in output
    [ticket] = tmp_path.glob("runs/*wanda-prune*/tickets/fine-tuning.safetensors")
    assert prunus.Ticket.load(ticket).mask.density == pytest.approx(0.2, abs=1e-4)
