"""Concrete Ticket Search: its phases, GradBalance, Adam and the KL objective, by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import prunus
from prunus.gates import plain_tensors
from support.models import ConvNet, images, seeded

x = images(4, 2, 5, 5)()


def search(model=None, **settings):
    settings = {"steps": 8, "rewind_step": 2, "search": 0.5, "target_density": 0.25, **settings}
    return prunus.ConcreteTicketSearch(model or seeded(ConvNet), select="all", **settings)


def train(cts, steps, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(cts.param_groups(0.1, weight_decay=0.1), momentum=0.9)
    for _ in range(steps):
        cts.model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        cts.step()
    return optimizer


def weights(cts):
    return {name: tensor.clone() for name, tensor in plain_tensors(cts.model).items()}


def test_dense_training_then_the_search_then_sparse_training():
    cts = search()
    optimizer = train(cts, 1)
    assert cts.mask().density == 1.0
    train(cts, 1, optimizer)
    early = weights(cts)
    train(cts, 3, optimizer)
    assert all(torch.equal(early[n], t) for n, t in weights(cts).items()), "the weights wait"
    assert len(cts.gates["fc.weight"].score.unique()) > 1, "and the scores move"
    train(cts, 1, optimizer)
    assert all(torch.equal(early[n], t) for n, t in weights(cts).items())
    found = cts.mask()
    assert found.kept == round(0.25 * found.total)
    train(cts, 2, optimizer)
    assert not torch.equal(early["conv1.weight"], weights(cts)["conv1.weight"])
    assert cts.mask() == found == cts.end_round()
    ticket = cts.ticket(whole=True)
    assert all(torch.equal(early[n], t) for n, t in ticket.weights.items())


def test_without_a_rewind_point_the_initial_weights_are_searched():
    cts = search(rewind_step=None)
    early = weights(cts)
    train(cts, 4)
    assert all(torch.equal(early[n], t) for n, t in weights(cts).items())
    assert cts.mask().kept == round(0.25 * cts.mask().total)


def on_scores(scores, **settings):
    """Two weights with these scores, one step into their search."""
    model = nn.Linear(2, 1, bias=False)
    cts = search(model, rewind_step=0, target_density=0.5, objective="loss", **settings)
    cts.gates["weight"].score.copy_(torch.tensor([scores]))
    return cts


def step_with(cts, gradient):
    cts.gates["weight"]._probe.grad = torch.tensor([gradient])
    cts.step()
    return cts.gates["weight"].score[0].tolist()


def test_the_scores_slow_down_at_the_end_of_the_search():
    """Adam moves by its rate if all gradients are the same; few are kept, so that lambda is 0."""
    cts = on_scores([-3.0, -3.0], score_lr=0.1)
    found = [step_with(cts, [1.0, -1.0])[0] for _ in range(4)]
    assert found == pytest.approx([-3.1, -3.2, -3.3, -3.31], abs=1e-5)


def test_scores_start_at_the_density():
    assert search(target_density=0.2).gates["fc.weight"].score.sigmoid().unique().item() == (
        pytest.approx(0.2)
    )


def test_the_first_step_of_adam_has_the_length_of_its_rate():
    # sigmoid(0) and sigmoid(-2) are less than 1.1 weights together: the task alone decides
    cts = on_scores([0.0, -2.0], score_lr=0.5)
    assert step_with(cts, [0.3, -0.001]) == pytest.approx([-0.5, -1.5], abs=1e-3)
    assert cts._strength == 0.0


def test_gradbalance_by_hand():
    # both at 1: sigmoid is 0.731, together 1.46 > 1.1, so lambda has both norms equal
    cts = on_scores([1.0, 1.0], score_lr=0.5)
    scores = step_with(cts, [0.3, -0.4])
    p = 1 / (1 + math.exp(-1))
    norm = math.hypot(p * (1 - p), p * (1 - p))
    assert cts._strength == pytest.approx(100 * 0.5 / norm)
    # 30 + 50 / sqrt(2) and -40 + 50 / sqrt(2): 65.4 and -4.6, of which Adam takes the sign
    assert scores == pytest.approx([0.5, 1.5], abs=1e-3)
    # then the target of lambda is zero, and it moves there by a hundredth
    before = cts._strength
    cts.gates["weight"].score.fill_(-5.0)
    step_with(cts, [0.3, -0.4])
    assert cts._strength == pytest.approx(0.99 * before)


def test_the_gradient_of_the_kl_divergence_takes_the_place_of_the_loss():
    model = nn.Linear(3, 4, bias=False)
    cts = search(model, rewind_step=0, target_density=0.5)
    batch = torch.randn(5, 3)
    torch.manual_seed(3)
    output = model(batch)
    (output * torch.randn(5, 4)).sum().backward()  # any loss
    found = cts.gates["weight"].gradient.clone()

    cts.gates["weight"].enter("searching")
    torch.manual_seed(3)
    with torch.no_grad():
        dense = F.linear(batch, plain_tensors(model)["weight"]).softmax(-1)
    sparse = F.linear(batch, cts.gates["weight"](plain_tensors(model)["weight"])).softmax(-1)
    kl = (sparse * (sparse.log() - dense.log())).sum(-1).mean()
    kl.backward()
    assert torch.allclose(found, cts.gates["weight"].gradient, atol=1e-6)
    assert found.any()


def test_a_model_that_returns_no_logits_is_told_so():
    class Pair(nn.Linear):
        def forward(self, batch):
            return super().forward(batch), batch

    cts = search(Pair(3, 4), rewind_step=0)
    with pytest.raises(prunus.SettingError, match=r"returns tuple: set objective='loss'"):
        cts.model(torch.randn(2, 3))
    cts = search(Pair(3, 4), rewind_step=0, objective="loss")
    cts.model(torch.randn(2, 3))[0].sum().backward()
    assert cts.gates["weight"].gradient.any()


def test_the_search_prefers_the_weights_that_matter():
    """Eight inputs, of which two decide the label: their weights are kept."""
    torch.manual_seed(0)
    model = nn.Linear(8, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[2.0, 2.0] + [0.1] * 6, [-2.0, -2.0] + [-0.1] * 6]))
    cts = search(model, steps=60, rewind_step=0, search=1.0, target_density=0.25)
    for _ in range(60):
        model(torch.randn(64, 8)).sum().backward()
        cts.step()
    assert cts.commit()["weight"].tolist() == [[True] * 2 + [False] * 6] * 2


class Normalised(nn.Module):
    """A linear layer, then BatchNorm with given statistics and dropout."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 2, bias=False), nn.BatchNorm1d(2)
        self.drop = nn.Dropout(0.9)
        self.norm.running_mean.copy_(torch.tensor([1.0, -2.0]))
        self.norm.running_var.copy_(torch.tensor([4.0, 9.0]))

    def forward(self, batch):
        if batch.isnan().any():
            raise ValueError("not a number")
        return self.drop(self.norm(self.linear(batch)))


@pytest.mark.parametrize("objective", ["kl", "loss"])
def test_the_search_normalises_as_the_dense_network_does_in_evaluation(objective):
    model = Normalised().train()
    search(model, rewind_step=0, target_density=0.5, objective=objective)
    weight, batch = plain_tensors(model)["linear.weight"], x[:, 0, 0, :3]
    for _ in range(2):  # the second pass finds everything as the first did
        torch.manual_seed(3)
        found = model(batch)
        torch.manual_seed(3)
        z = torch.sigmoid(torch.rand(2, 3).logit(1e-6) / (2 / 3))
        shift, scale = torch.tensor([1.0, -2.0]), torch.tensor([2.0, 3.0])
        assert torch.allclose(found, (batch @ (z * weight).T - shift) / scale, atol=1e-4)
        assert all(module.training for module in model.modules())
        assert model.norm.running_mean.tolist() == [1.0, -2.0]
    with pytest.raises(ValueError, match="not a number"):
        model(torch.full((2, 3), math.nan))
    assert all(module.training for module in model.modules()), "also after a pass that failed"


def test_no_hook_stays_after_the_search():
    cts = search()
    train(cts, 3)
    assert cts.model._forward_hooks and cts.model._forward_pre_hooks
    train(cts, 3)
    assert not cts.model._forward_hooks and not cts.model._forward_pre_hooks


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"search": 0.0}, "search=0.0: the search is a part"),
        ({"score_lr": 0.0}, "score_lr=0.0: the scores' rate"),
        ({"objective": "mse"}, "objective='mse' is not 'kl' or 'loss'"),
        ({"target_density": 0.0}, "target_density=0.0: "),
    ],
)
def test_bad_settings(bad, message):
    with pytest.raises(prunus.SettingError, match=message):
        search(**bad)


@pytest.mark.parametrize("name", ["cts", "pilot", "acdc", "feather"])
def test_from_the_command_line(cli, tmp_path, name):
    status, output, errors = cli(
        "search", "--task", "digits/digits_convnet", "--method", name, "--epochs", 2,
        "--target-density", 0.2, "--rounds", 1, "--rewind-epoch", 0.25,
        "--set", "data.train_images=200",
    )  # fmt: skip
    assert status == 0, errors
    assert "20.0" in output
    [ticket] = tmp_path.glob(f"runs/*{name}-search*/tickets/round-1.safetensors")
    assert prunus.Ticket.load(ticket).mask.density == pytest.approx(0.2, abs=1e-4)
