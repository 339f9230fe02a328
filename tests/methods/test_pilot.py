"""PILoT: its start, its penalty and the control of its strength, by hand."""

import pytest
import torch
from torch import nn

import prunus
from prunus.gates import gated_parameters, plain_tensors
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()


def four(weights=(4.0, -3.0, 2.0, 1.0), **settings):
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([weights]))
    settings = {"steps": 8, "target_density": 0.5, "select": "all", **settings}
    return prunus.PILoT(model, **settings)


def parts(pilot):
    return pilot.gates["weight"].scaling.detach(), gated_parameters(pilot.model)["weight"][1]


def test_the_start_by_hand():
    # x = sqrt(2): m^2 = (1 + sqrt(1 + 8)) / 2 = 2 and w^2 = 1
    pilot = four((2**0.5, -(2**0.5), 0.0, 1.0))
    m, w = parts(pilot)
    assert m[0, :3].tolist() == pytest.approx([2**0.5, 2**0.5, 1.0])
    assert w[0, :3].tolist() == pytest.approx([1.0, -1.0, 0.0])
    assert torch.allclose(m.square() - w.square(), torch.ones(()))


def test_attaching_changes_no_output_and_leaving_changes_no_weight():
    model = seeded(ConvNet).eval()
    before, output = {n: p.clone() for n, p in model.named_parameters()}, model(x)
    pilot = prunus.PILoT(model, steps=4, select="all")
    assert torch.allclose(model(x), output, atol=1e-6)
    pilot.remove()
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter, before[name], atol=1e-7)


def test_the_penalty_by_hand():
    pilot = four(penalty=0.1)
    m, w = parts(pilot)
    with torch.no_grad():
        m.fill_(2.0)
        w.fill_(1.0)
    assert pilot.penalty().item() == pytest.approx(0.1 * (4 * 4.0 + 4 * 1.0))
    pilot.penalty().backward()
    assert pilot.gates["weight"].scaling.grad.tolist() == [[pytest.approx(0.4)] * 4]
    assert w.grad.tolist() == [[pytest.approx(0.2)] * 4]


def test_regularize_is_the_penalty_in_the_gradients():
    pilot = four(penalty=0.1)
    pilot.regularize()
    _, w = parts(pilot)
    assert torch.allclose(w.grad, 0.2 * w)


def strengths(pilot):
    found = []
    for _ in range(pilot.steps):
        pilot.step()
        found.append(pilot._rise)
    return found


def test_the_strength_rises_in_the_first_half_and_falls_in_the_second():
    assert strengths(four(growth=1.5)) == pytest.approx(
        [1.5, 1.5**2, 1.5**3, 1.5**4, 1.5**3, 1.5**2, 1.5, 1.0]
    )


def test_the_strength_falls_once_the_network_is_sparse_enough():
    # of 4 + 3 + 0.05 + 0.01 less than 1 % is in what the cut removes
    assert strengths(four((4.0, -3.0, 0.05, 0.01), growth=1.5))[:2] == pytest.approx(
        [1 / 1.5, 1 / 1.5**2]
    )


def test_a_hundred_updates_in_a_long_round():
    found = strengths(four(steps=1000))
    assert found[:10] == [1.0] * 9 + [1.1]
    assert max(found) == pytest.approx(1.1**50)


def test_the_cut_goes_by_the_product_and_hardening_writes_it():
    pilot = four((1.0, 1.0, 1.0, 1.0))
    m, w = parts(pilot)
    with torch.no_grad():
        m.copy_(torch.tensor([[1.0, 3.0, 0.1, 2.0]]))
        w.copy_(torch.tensor([[4.0, 1.0, 9.0, 1.0]]))
    pilot.step()
    assert pilot.harden()["weight"].tolist() == [[True, True, False, False]]
    assert pilot.model.weight.tolist() == [[4.0, 3.0, 0.0, 0.0]]
    assert parts(pilot)[0].tolist() == [[1.0] * 4]


def test_the_optimiser_decays_neither_factor():
    pilot = prunus.PILoT(seeded(ConvNet), steps=4, select="all")
    rest, own = pilot.param_groups(0.1, weight_decay=0.01)
    assert (rest["weight_decay"], own["weight_decay"]) == (0.01, 0.0)
    learned = {id(p) for p in own["params"]}
    weights = {id(w) for _, w in gated_parameters(pilot.model).values()}
    assert weights < learned and len(learned) == 2 * len(weights)
    assert not learned & {id(p) for p in rest["params"]}
    everything = {id(p) for p in pilot.model.parameters()}
    assert everything == learned | {id(p) for p in rest["params"]}
    pilot.harden()
    [group] = pilot.param_groups(0.1, weight_decay=0.01)
    plain = plain_tensors(pilot.model)
    trained = {id(plain[name]) for name, _ in seeded(ConvNet).named_parameters()}
    assert {id(p) for p in group["params"]} == trained, "fine-tuning is that of a plain network"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"growth": 0.9}, "growth=0.9: the strength changes"),
        ({"penalty": -1.0}, "penalty=-1.0: "),
        ({"target_density": 0.0}, "target_density=0.0: "),
    ],
)
def test_bad_settings(bad, message):
    with pytest.raises(prunus.SettingError, match=message):
        four(**bad)
