"""Transformers: captured, compacted and run by the native core, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import prunus
from prunus import DeployError
from prunus.deployment import capture, compact, to_module
from prunus.deployment.axes import BATCH, Atom, Size, arranged, reshaped, standard
from prunus.tasks.networks.gpt import GPT
from prunus_runtime import Deployed, InputError, load, reference
from support.deployable import randomised
from support.native_paths import ISAS


@torch.no_grad()
def check(model: nn.Module, x: Tensor) -> None:
    """Every form of the captured network computes what the model does."""
    expected = model.eval()(x).numpy()
    scale = np.abs(expected).max()
    assert scale > 0
    graph = compact(capture(model, x))
    assert np.abs(to_module(graph)(x).numpy() - expected).max() < 1e-4 * scale
    as_float = x.numpy().astype(np.float32)
    assert np.abs(reference.run(graph, as_float) - expected).max() < 1e-4 * scale
    for isa in ISAS:
        network = Deployed(graph, 2, isa=isa)
        for n in (1, 2, len(x)):
            found = network(x[:n].numpy())
            assert np.abs(found - expected[:n]).max() < 1e-4 * scale


def test_a_gpt(tmp_path):
    torch.manual_seed(0)
    model = randomised(GPT(vocabulary=11, context=20, width=24, depth=2), 0.3).eval()
    x = torch.randint(0, 11, (5, 20))
    check(model, x)
    deployed = prunus.deploy(model, None, x)
    assert not deployed.fallback
    assert deployed(x).shape == (5, 20, 11)
    network = load(deployed.save(tmp_path / "gpt.prunus"))
    assert np.array_equal(network(x.numpy()), deployed(x).numpy())
    assert network.graph.tokens.vocabulary == 11
    with pytest.raises(InputError, match=r"tokens from 0 to 11; .* from 0 to 10"):
        network(np.arange(20)[None] % 12)
    with pytest.raises(InputError, match="tokens from -1"):
        network(np.full((1, 20), -1))
    with pytest.raises(InputError, match="tokens are integers"):
        network(np.zeros((1, 20), np.float32))
    with pytest.raises(InputError, match=r"not \(n, 1 to 20\)"):
        network(np.zeros((1, 21), np.int64))
    assert np.allclose(network(x[:2, :7].numpy()), model(x[:2, :7]).detach(), atol=1e-4)


def test_a_length_that_matters_stays_as_it_is():
    class Summed(nn.Module):
        """Its mean is over the length of the example, whatever the input's is."""

        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.table(x).mean(1) * (x.shape[1] / 6)

    x = torch.randint(0, 5, (2, 6))
    deployed = prunus.deploy(Summed(), None, x)
    assert not deployed.graph.tokens.shorter
    with pytest.raises(InputError, match=r"not \(n, 6\)"):
        deployed(x[:, :3])


class Mixer(nn.Module):
    """Whatever transformers do to the order of dimensions, on a batch of sequences."""

    def __init__(self, function, width: int = 6) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: x.transpose(1, 2),
        lambda x: x.mean(1),
        lambda x: x.mean(1, keepdim=True).squeeze(1),
        lambda x: x[:, 0],
        lambda x: x[:, -1].tanh(),
        lambda x: x[:, 1:4, ::2],
        lambda x: x.flatten(1),
        lambda x: F.softmax(x, -1),
        lambda x: F.log_softmax(x, 1),
        lambda x: F.layer_norm(x, (6,)),
        lambda x: F.rms_norm(x, (6,), torch.arange(6.0), 0.1),
        lambda x: F.gelu(x, approximate="tanh") * 2 - 1,
        lambda x: x + torch.arange(30.0).reshape(5, 6),
        lambda x: 3 * x + torch.arange(5.0)[:, None],
        lambda x: x.reshape(-1, 5, 2, 3).unbind(2)[1],
        lambda x: torch.cat(x.view(-1, 5, 6).transpose(1, 2).chunk(2, 1), 1),
        lambda x: x + x.reshape(-1, 6).tanh().reshape(-1, 5, 6),
        lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0],
    ],
)
def test_orders_of_dimensions(function):
    torch.manual_seed(0)
    check(Mixer(function), torch.randn(3, 5, 6))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.reshape(-1, 6, 5), "which mixes channels and positions"),
        (lambda x: F.layer_norm(x, (5, 6)), "over more than the last dimension"),
        (lambda x: x * torch.arange(5.0)[:, None], "a factor that differs between positions"),
        (lambda x: x.view(-1, 5, 2, 3)[..., 0], "for a part of each of several groups"),
        (lambda x: x.cumsum(1), "the operation cumsum is not known"),
    ],
)
def test_what_is_not_supported_is_said(function, message):
    with pytest.raises(DeployError, match=message):
        capture(Mixer(function), torch.randn(3, 5, 6))


def test_tokens_that_are_not_embedded_are_refused():
    class Counting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x * 2)

    with pytest.raises(DeployError, match="something else with its tokens"):
        capture(Counting(), torch.zeros(1, 4, dtype=torch.int64))


def test_axes_of_an_attention_worked_out_by_hand():
    # (128 channels, 32 positions), read as (batch, position, channel), then with 4 heads.
    tokens = ((BATCH,), (Atom(1, 32, 1),), (Atom(0, 128, 1),))
    heads = reshaped(tokens, [Size(True, 1), Size(False, 32), Size(False, 4), Size(False, 32)])
    assert heads == (*tokens[:2], (Atom(0, 4, 32),), (Atom(0, 32, 1),))
    joined = reshaped(heads, [Size(True, 32), Size(False, 128)])
    assert joined == ((BATCH, Atom(1, 32, 1)), (Atom(0, 128, 1),))
    assert reshaped(joined, [Size(True, 1), Size(False, 32), Size(False, 128)]) == tokens
    uneven = ((BATCH,), (Atom(1, 5, 1),), (Atom(0, 6, 1),))
    assert reshaped(uneven, [Size(True, 1), Size(False, 6), Size(False, 5)]) is None
    assert reshaped(standard((3,)), [Size(True, 3)]) == ((BATCH, Atom(0, 3, 1)),)


def test_a_constant_is_arranged_like_the_value():
    axes = ((BATCH,), (Atom(1, 3, 1),), (Atom(0, 2, 1),))
    tensor = torch.tensor([[1, 2], [3, 4], [5, 6]])
    assert arranged(tensor, axes, (2, 3)).tolist() == [[1, 3, 5], [2, 4, 6]]
    assert arranged(torch.tensor([7, 8]), axes, (2, 3)).tolist() == [[7, 7, 7], [8, 8, 8]]
