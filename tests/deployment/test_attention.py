"""Attention that is written out, as one operation: whatever models put between the products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import prunus
from prunus.deployment import capture, compact, to_module
from prunus_runtime import reference
from support.deployable import randomised

LATER = torch.ones(7, 7).triu(1).bool()
"""What a causal attention hides."""
LOWEST = torch.finfo(torch.float32).min


class Attention(nn.Module):
    """(2, 7, 12) to the same, four heads; `between` is what happens to its scores."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.project, self.between = nn.Linear(12, 36), between

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(x).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (4, 3)).transpose(1, 2) for part in parts)
        y = self.between(q @ k.transpose(-2, -1)) @ v
        return y.transpose(1, 2).flatten(2)


def mask() -> Tensor:
    return torch.zeros(7, 7).masked_fill(LATER, LOWEST)


SPELLINGS = {
    "nothing": lambda s: s.softmax(-1),
    "divided": lambda s: (s / 3**0.5).softmax(-1),
    "twice scaled": lambda s: F.softmax(0.5 * s * torch.tensor(2.0), dim=3),
    "dropout": lambda s: F.dropout(s.softmax(-1), 0.5, training=False),
    "added mask": lambda s: (s * 0.5 + mask()).softmax(-1),
    "mask first": lambda s: (mask() + s).softmax(-1),
    "mask of nothing": lambda s: (s + torch.zeros(1, 1, 1, 7)).softmax(-1),
    "filled": lambda s: s.masked_fill(LATER, float("-inf")).softmax(-1),
    "chosen": lambda s: torch.where(~LATER, s, torch.full((), LOWEST)).softmax(-1),
}


@pytest.mark.parametrize("between", SPELLINGS.values(), ids=SPELLINGS)
@torch.no_grad()
def test_what_is_written_out_becomes_one_operation(between: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model, x = randomised(Attention(between), 0.6).eval(), torch.randn(2, 7, 12)
    expected = model(x).numpy()
    graph = compact(capture(model, x))
    kinds = [operation.kind for operation in graph.operations]
    assert kinds.count("attention") == 1 and not {"softmax", "multiply", "affine"} & {*kinds}
    for found in (to_module(graph)(x).numpy(), reference.run(graph, x.numpy())):
        assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


WINDOW = LATER | torch.ones(7, 7).tril(-3).bool()
REFUSED = {
    "operation exp is not known": lambda s: s.exp(),
    "other than a causal one": lambda s: s.masked_fill(WINDOW, float("-inf")).softmax(-1),
    "but to hide keys by a constant mask": lambda s: s.masked_fill(LATER, 0.0).softmax(-1),
    "other than by one positive number": lambda s: (s * -1.0).softmax(-1),
    "over anything but the keys": lambda s: s.softmax(-2),
    "after its softmax": lambda s: s.softmax(-1) * 2.0,
    "but to weight values after a softmax": lambda s: s * 2.0,
    "of an attention and another value": lambda s: (s + s).softmax(-1),
}


@pytest.mark.parametrize(("reason", "between"), REFUSED.items(), ids=REFUSED)
def test_anything_else_runs_in_pytorch_and_says_why(
    reason: str, between: Callable[[Tensor], Tensor]
) -> None:
    model, x = Attention(between).eval(), torch.randn(2, 7, 12)
    deployed = prunus.deploy(model, None, x)
    assert reason in deployed.fallback
    assert torch.allclose(deployed(x), model(x), atol=1e-6)


def test_scores_are_no_output() -> None:
    class Shown(Attention):
        def forward(self, x: Tensor) -> Tensor:
            heads = self.project(x).unflatten(-1, (4, 9)).transpose(1, 2)
            return self.between(heads @ heads.transpose(-2, -1))

    model = Shown(lambda scores: scores.softmax(-1))
    deployed = prunus.deploy(model, None, torch.randn(2, 7, 12))
    assert deployed.fallback == "the model's output is the scores of an attention"
