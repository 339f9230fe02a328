"""Layouts: which weights share a gate."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from prunus import SettingError, candidates
from prunus.gates import Granularity, Layout, layout

CONV = nn.Conv2d(4, 6, 3)  # weight (6, 4, 3, 3)
DEPTHWISE = nn.Conv2d(4, 8, 3, groups=4)  # weight (8, 1, 3, 3)
TRANSPOSED = nn.ConvTranspose2d(4, 6, 3)  # weight (4, 6, 3, 3), stored as (in, out)
GROUPED = nn.ConvTranspose1d(4, 6, 5, groups=2)  # weight (4, 3, 5): 2 groups of 2 in and 3 out
LINEAR = nn.Linear(4, 6)  # weight (6, 4)
EMBEDDING = nn.Embedding(10, 4)  # weight (10, 4)
LSTM = nn.LSTM(2, 3)  # weight_ih_l0 (12, 2)


def layout_of(module: nn.Module, granularity: Granularity) -> Layout:
    return layout(candidates(module)[0], granularity)


@pytest.mark.parametrize(
    ("module", "granularity", "view", "score", "shared"),
    [
        (CONV, "weight", (6, 4, 3, 3), (6, 4, 3, 3), 1),
        (CONV, "kernel", (6, 4, 3, 3), (6, 4, 1, 1), 9),
        (CONV, "filter", (6, 4, 3, 3), (6, 1, 1, 1), 36),
        (CONV, (2, 2), (3, 2, 2, 2, 3, 3), (3, 1, 2, 1, 1, 1), 36),
        (CONV, (6, 1), (6, 4, 3, 3), (1, 4, 1, 1), 54),
        (CONV, [3, 4], (2, 3, 4, 3, 3), (2, 1, 1, 1, 1), 108),
        (DEPTHWISE, "kernel", (8, 1, 3, 3), (8, 1, 1, 1), 9),
        (DEPTHWISE, "filter", (8, 1, 3, 3), (8, 1, 1, 1), 9),
        (TRANSPOSED, "weight", (1, 4, 6, 3, 3), (1, 4, 6, 3, 3), 1),
        (TRANSPOSED, "kernel", (1, 4, 6, 3, 3), (1, 4, 6, 1, 1), 9),
        (TRANSPOSED, "filter", (1, 4, 6, 3, 3), (1, 1, 6, 1, 1), 36),
        (TRANSPOSED, (3, 2), (1, 2, 2, 2, 3, 3, 3), (1, 2, 1, 2, 1, 1, 1), 54),
        (GROUPED, "weight", (2, 2, 3, 5), (2, 2, 3, 5), 1),
        (GROUPED, "kernel", (2, 2, 3, 5), (2, 2, 3, 1), 5),
        (GROUPED, "filter", (2, 2, 3, 5), (2, 1, 3, 1), 10),
        (LINEAR, "weight", (6, 4), (6, 4), 1),
        (LINEAR, "kernel", (6, 4), (6, 4), 1),
        (LINEAR, "filter", (6, 4), (6, 1), 4),
        (LINEAR, (3, 2), (2, 3, 2, 2), (2, 1, 2, 1), 6),
        (LINEAR, (6, 4), (6, 4), (1, 1), 24),
        (EMBEDDING, "filter", (10, 4), (10, 1), 4),
        (EMBEDDING, (5, 1), (2, 5, 4), (2, 1, 4), 5),
        (LSTM, "filter", (12, 2), (12, 1), 2),
    ],
)
def test_layouts_by_hand(
    module: nn.Module,
    granularity: Granularity,
    view: tuple[int, ...],
    score: tuple[int, ...],
    shared: int,
) -> None:
    found = layout_of(module, granularity)
    assert (found.view, found.score, found.weights_per_gate) == (view, score, shared)
    assert found.weight == tuple(candidates(module)[0].parameter.shape)


@pytest.mark.parametrize(
    ("module", "removed"),
    [
        (CONV, lambda w: w[1]),
        (LINEAR, lambda w: w[1]),
        (EMBEDDING, lambda w: w[1]),
        (TRANSPOSED, lambda w: w[:, 1]),
        # Output 1 of group 0 is made of that group's inputs, 0 and 1, alone.
        (GROUPED, lambda w: w[:2, 1]),
    ],
    ids=["conv", "linear", "embedding", "transposed", "grouped"],
)
def test_a_filter_is_what_makes_one_output(module: nn.Module, removed) -> None:
    found = layout_of(module, "filter")
    score = torch.ones(found.score)
    score.flatten()[1] = 0
    gated = torch.ones(found.weight).view(found.view) * score
    gated = gated.view(found.weight)
    assert not removed(gated).any()
    assert int((gated == 0).sum()) == removed(gated).numel()


def test_a_filter_of_a_grouped_transposed_convolution_silences_one_channel() -> None:
    conv = nn.ConvTranspose1d(4, 6, 5, groups=2, bias=False)
    found = layout_of(conv, "filter")
    score = torch.ones(found.score)
    score.flatten()[4] = 0  # group 1, output 1 of that group: channel 4
    with torch.no_grad():
        conv.weight.copy_((conv.weight.view(found.view) * score).view(found.weight))
        silent = ~conv(torch.randn(1, 4, 7)).flatten(2).any(dim=2)[0]
    assert silent.tolist() == [False, False, False, False, True, False]


@pytest.mark.parametrize(
    ("module", "block", "message"),
    [
        (CONV, (4, 1), r"blocks of 4 do not divide the 6 outputs of 0\.weight \(shape \(6, 4, 3"),
        (CONV, (1, 3), r"blocks of 3 do not divide the 4 inputs of 0\.weight"),
        (LINEAR, (4, 4), r"blocks of 4 do not divide the 6 outputs of 0\.weight \(shape \(6, 4\)"),
        (TRANSPOSED, (4, 1), r"blocks of 4 do not divide the 6 outputs of 0\.weight"),
        (GROUPED, (2, 1), r"blocks of 2 do not divide the 3 outputs of 0\.weight"),
        (EMBEDDING, (7, 1), r"blocks of 7 do not divide the 10 outputs of 0\.weight"),
        (LINEAR, (12, 1), r"blocks of 12 do not divide the 6 outputs of 0\.weight"),
    ],
)
def test_blocks_that_do_not_divide(module: nn.Module, block: tuple[int, int], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        layout_of(nn.Sequential(module), block)


@pytest.mark.parametrize("granularity", ["layer", "", (2,), (2, 2, 2), (0, 1), (1.5, 2), None, 4])
def test_unknown_granularities(granularity: object) -> None:
    with pytest.raises(SettingError, match=r"granularity=.* is not one of 'weight'"):
        layout_of(LINEAR, granularity)  # type: ignore[arg-type]


@pytest.mark.parametrize("module", [LINEAR, TRANSPOSED])
def test_a_one_dimensional_parameter(module: nn.Module) -> None:
    [bias] = [c for c in candidates(module) if c.name == "bias"]
    assert layout(bias, "weight") == Layout((6,), (6,), (6,))
    assert layout(bias, "filter").score == (6,)
