"""Effective density: what of the kept weights is connected, by hand and by brute force."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import prunus
from prunus import Mask
from prunus.runs.connected import effective_density
from prunus.tasks.networks import build_network


def connected(model, example, **masks):
    """How many of the kept weights are connected; `_0` is the mask of `0.weight`."""
    names = {f"{name.strip('_').replace('__', '.')}.weight": rows for name, rows in masks.items()}
    mask = Mask({name: torch.tensor(rows, dtype=torch.bool) for name, rows in names.items()})
    found = effective_density(model, mask, example)
    return None if found is None else round(found * mask.total, 9)


def test_linear_layers_by_hand():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    # Hidden 0 has no input, hidden 1 is read by nobody, hidden 2 is on the way.
    first, last = [[0, 0], [1, 1], [1, 0]], [[1, 0, 0], [0, 0, 1]]
    assert connected(model, torch.zeros(4, 2), _0=first, _2=last) == 2


def test_what_no_mask_covers_connects():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    assert connected(model, torch.zeros(4, 2), _0=[[0, 0], [1, 1], [1, 0]]) == 3
    assert connected(model, torch.zeros(4, 2), _2=[[1, 0, 0], [0, 0, 1]]) == 2


def test_nothing_is_connected_across_an_empty_layer():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    full, empty = [[1, 1], [1, 1]], [[0, 0], [0, 0]]
    assert connected(model, torch.zeros(1, 2), _0=full, _1=empty, _2=full) == 0
    assert connected(model, torch.zeros(1, 2), _0=full, _1=full, _2=full) == 12


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 1)
        self.norm = nn.BatchNorm2d(2)
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(2, 1)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)), inplace=True)
        x += self.conv(x)
        return self.head(self.pool(x).mean((2, 3)))


def of_kernels(rows):
    """A mask of 3x3 kernels with all or none of their weights."""
    return [[[[keep] * 3] * 3 for keep in row] for row in rows]


def test_a_residual_connection_by_hand():
    model = Residual()
    stem = [[[[1]]], [[[0]]]]  # channel 1 is constant: its batch norm's shift
    # From 0 to 1 (alive), from 1 to 0 and 1 (reads the constant); the head reads channel 1 alone.
    conv = of_kernels([[0, 1], [1, 1]])
    found = connected(model, torch.zeros(2, 1, 4, 4), stem=stem, conv=conv, head=[[0, 1]])
    assert found == 1 + 9 + 1
    # The head reads channel 0 alone, which comes by the shortcut.
    found = connected(model, torch.zeros(2, 1, 4, 4), stem=stem, conv=conv, head=[[1, 0]])
    assert found == 1 + 1


def test_groups_and_concatenation_by_hand():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(4, 4, 1, groups=2), nn.Conv2d(4, 1, 1)

        def forward(self, x):
            return self.b(torch.cat([self.a(x)[:, 2:], self.a(x)[:, :2]], 1))

    # Outputs 0 and 1 read inputs 0 and 1; b reads them third and fourth. It reads output 1 alone.
    a = [[[[1]], [[1]]], [[[1]], [[0]]], [[[1]], [[1]]], [[[1]], [[1]]]]
    b = [[[[0]], [[0]], [[0]], [[1]]]]
    assert connected(Net(), torch.zeros(1, 4, 1, 1), a=a, b=b) == 1 + 1


def test_a_layer_norm_reads_all_channels():
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 1))
    assert connected(model, torch.zeros(1, 2), _0=[[1, 0], [0, 1]], _2=[[1, 0]]) == 3
    without = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    assert connected(without, torch.zeros(1, 2), _0=[[1, 0], [0, 1]], _2=[[1, 0]]) == 2


def test_what_is_subtracted_or_added_to_a_constant_is_connected_too():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
            self.shift = nn.Parameter(torch.ones(2))

        def forward(self, x):
            y = self.a(x)
            return self.b(torch.add(y, y, alpha=-1) - 1 + self.shift[:2]) * self.shift

    model = Net()
    assert connected(model, torch.zeros(1, 2), a=[[1, 0], [0, 0]], b=[[1, 1], [0, 0]]) == 2


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.floats(0.05, 0.9))
def test_as_by_following_every_path(seed, density):
    generator = np.random.default_rng(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2))
    masks = {i: generator.random(model[i].weight.shape) < density for i in (0, 2, 4)}
    on_a_path = {i: np.zeros_like(mask) for i, mask in masks.items()}
    for a, b, c, d in np.ndindex(3, 4, 4, 2):
        if masks[0][b, a] and masks[2][c, b] and masks[4][d, c]:
            on_a_path[0][b, a] = on_a_path[2][c, b] = on_a_path[4][d, c] = True
    mask = Mask({f"{i}.weight": torch.from_numpy(mask) for i, mask in masks.items()})
    expected = sum(flags.sum() for flags in on_a_path.values()) / mask.total
    assert effective_density(model, mask, torch.zeros(1, 3)) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["resnet20", "vgg16-quarter", "vit", "lenet", "mlp", "conv6"])
def test_networks_of_every_kind(name):
    """Whole networks are connected; and what is not, changes no output."""
    model = build_network(name, num_classes=10, image_size=16, channels=3).eval()
    example = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    weights = {c.name: c.parameter for c in prunus.choose(model, "all")}
    whole = Mask({name: torch.ones_like(w, dtype=torch.bool) for name, w in weights.items()})
    before = copy.deepcopy(model.state_dict())
    assert effective_density(model, whole, example) == 1
    generator = torch.Generator().manual_seed(0)
    sparse = Mask({n: torch.rand(w.shape, generator=generator) < 0.02 for n, w in weights.items()})
    assert 0 < effective_density(model, sparse, example) < sparse.density
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(parameter.grad is not None for parameter in model.parameters())


class Unseen(torch.autograd.Function):
    """Code of others that torch's modes do not see: the first channel everywhere."""

    @staticmethod
    def forward(_, x):
        return x[:, :1].expand(x.shape).clone()

    @staticmethod
    def backward(_, gradient):
        return gradient


class Odd(nn.Module):
    def __init__(self, compute):
        super().__init__()
        self.layer, self.compute = nn.Linear(2, 2), compute

    def forward(self, x):
        return self.compute(self, x)


@pytest.mark.parametrize(
    "compute",
    [
        lambda self, x: torch.cumsum(self.layer(x), 1),
        lambda self, x: self.layer(x) @ self.layer.weight,
        lambda self, x: F.linear(x, self.layer.weight + 1),
        lambda self, x: Unseen.apply(self.layer(x)),
        lambda self, x: self.layer(Unseen.apply(x)),
        lambda self, x: self.layer(x) if x.sum() > 3 else self.layer(x).cos(),
        lambda self, x: {"logits": self.layer(x)},
        lambda _, x: x,  # the layer is not used at all
    ],
)
def test_what_is_not_known_is_not_said(compute):
    assert connected(Odd(compute), torch.zeros(1, 2), layer=[[1, 0], [0, 1]]) is None


def test_tokens_are_not_flags():
    model = nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 1))
    assert connected(model, torch.zeros(1, 4, dtype=torch.int64), _1=[[1, 0]]) is None
