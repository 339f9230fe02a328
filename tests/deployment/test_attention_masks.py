"""Masks that models compute from their tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import prunus
from prunus.deployment import capture, compact, to_module
from prunus_runtime import reference
from support.deployable import randomised

LATER = torch.ones(7, 7).triu(1).bool()


class Masked(nn.Module):
    """Tokens (n, 7) to (n, 7, 12), by an attention of four heads; `between` gets scores and
    tokens."""

    def __init__(self, between: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.table, self.project, self.between = nn.Embedding(9, 12), nn.Linear(12, 36), between

    def forward(self, tokens: Tensor) -> Tensor:
        parts = self.project(self.table(tokens)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (4, 3)).transpose(1, 2) for part in parts)
        y = self.between(q @ k.transpose(-2, -1), tokens) @ v
        return y.transpose(1, 2).flatten(2)


def keys(flags: Tensor) -> Tensor:
    return flags[:, None, None, :]


SPELLINGS = {
    "filled": lambda s, t: s.masked_fill(keys(t == 0), float("-inf")).softmax(-1),
    "chosen": lambda s, t: torch.where(keys(t != 0), s, torch.tensor(-1e9)).softmax(-1),
    "added": lambda s, t: (s + (1.0 - keys(t != 0).float()) * -1e4).softmax(-1),
    "two tokens": lambda s, t: s.masked_fill(keys((t == 0) | (t >= 8)), -1e9).softmax(-1),
    "and causal": lambda s, t: s.masked_fill(keys(t == 0) | LATER, -1e9).softmax(-1),
    "then causal": lambda s, t: (
        s.masked_fill(keys(t == 0), -1e9).masked_fill(LATER, -1e9).softmax(-1)
    ),
    "two masks": lambda s, t: (
        s.masked_fill(keys(t == 0), -1e9).masked_fill(keys(t == 5), -1e9).softmax(-1)
    ),
}


def padded(count: int) -> Tensor:
    """Tokens of which each row has a longer end of zeros; the first of a row is never hidden."""
    tokens = torch.randint(1, 9, (count, 7), generator=torch.Generator().manual_seed(0))
    for row in tokens[1:]:
        row[torch.randint(1, 7, ()) :] = 0
    tokens[:, 0] = 3
    return tokens


@pytest.mark.parametrize("between", SPELLINGS.values(), ids=SPELLINGS)
@torch.no_grad()
def test_tokens_are_hidden_however_that_is_spelled(
    between: Callable[[Tensor, Tensor], Tensor],
) -> None:
    torch.manual_seed(0)
    model, tokens = randomised(Masked(between), 0.6).eval(), padded(9)
    expected = model(tokens).numpy()
    graph = compact(capture(model, tokens))
    assert [operation.kind for operation in graph.operations].count("attention") == 1
    deployed = prunus.deploy(model, None, tokens)
    assert not deployed.fallback or "compiled" in deployed.fallback
    x, scale = tokens.numpy(), np.abs(expected).max()
    ways = (to_module(graph)(tokens).numpy(), reference.run(graph, x.astype(np.float32)))
    for found in (*ways, deployed(x)):
        assert np.abs(found - expected).max() < 1e-5 * scale
    for store in ("fp16", "int8"):  # what hides can be rounded too
        assert np.abs(deployed.stored(store)(x) - expected).max() < 0.05 * scale


def test_pytorchs_own_encoder_layer_takes_a_padding_mask() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(9, 12)
            self.attention = nn.MultiheadAttention(12, 3, batch_first=True)

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.table(tokens)
            return x + self.attention(x, x, x, key_padding_mask=tokens == 0, need_weights=False)[0]

    model, tokens = randomised(Encoder(), 0.5).eval(), padded(5)
    deployed = prunus.deploy(model, None, tokens)
    assert deployed.graph is not None
    assert torch.allclose(deployed(tokens), model(tokens), atol=1e-5)


ROWS = "with a mask that depends on other tokens than the keys"
REFUSED = {
    ROWS: lambda s, t: s.masked_fill((t == 0)[:, None, :, None], -1e9).softmax(-1),
    "operation flip": lambda s, t: s.masked_fill(keys((t == 0).flip(1)), -1e9).softmax(-1),
    "operation cumsum": lambda s, t: s.masked_fill(keys((t == 0).cumsum(1) > 1), -1e9).softmax(-1),
    "other than a causal one": lambda s, t: s.masked_fill(
        keys((t == 0) | (torch.arange(7) > 3)), -1e9
    ).softmax(-1),
    "causal for some tokens only": lambda s, t: s.masked_fill(keys(t == 0) & LATER, -1e9).softmax(
        -1
    ),
    "on several tokens at a time": lambda s, t: s.masked_fill(
        keys(t == 0) | (t == 0)[:, None, :, None], -1e9
    ).softmax(-1),
    "other than by one positive number": lambda s, t: (s * keys(t != 0)).softmax(-1),
    "with more than one number": lambda s, t: s.masked_fill(
        keys(t == torch.arange(7)), -1e9
    ).softmax(-1),
}


@pytest.mark.parametrize(("reason", "between"), REFUSED.items(), ids=REFUSED)
@torch.no_grad()
def test_masks_of_another_kind_run_in_pytorch(
    reason: str, between: Callable[[Tensor, Tensor], Tensor]
) -> None:
    model, tokens = Masked(between).eval(), padded(5)
    deployed = prunus.deploy(model, None, tokens)
    assert deployed.graph is None and reason in deployed.fallback
    assert torch.allclose(deployed(tokens), model(tokens), atol=1e-6, equal_nan=True)


def test_hidden_states_under_a_mask_run_in_pytorch() -> None:
    class Zeroed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(9, 12)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.table(tokens) * (tokens != 0)[..., None]

    deployed = prunus.deploy(Zeroed(), None, padded(3))
    assert "on a mask that depends on tokens and another value" in deployed.fallback
