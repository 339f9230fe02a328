"""A small GPT: pre-norm blocks of causal attention, from linear layers that can be sparsified."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prunus.errors import SettingError


class CausalAttention(nn.Module):
    """Every position attends to itself and to those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, length, width))
        return result


class GPTBlock(nn.Module):
    """Attention and a two-layer perceptron, each normalised before and added after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        mixed: Tensor = x + self.mlp(self.norm2(x))
        return mixed


class GPT(nn.Module):
    """Token numbers (batch, length) to logits of the next token (batch, length, vocabulary)."""

    def __init__(
        self, *, vocabulary: int, context: int, width: int = 96, depth: int = 3, heads: int = 4
    ) -> None:
        super().__init__()
        if width % heads:
            raise SettingError(f"width={width} cannot be shared equally among {heads} heads")
        self.context = context
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.empty(context, width))
        self.blocks = nn.Sequential(*(GPTBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)
        for table in (self.tokens.weight, self.positions):
            nn.init.normal_(table, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > self.context:
            raise SettingError(f"{length} tokens are more than the context of {self.context}")
        x = self.tokens(tokens) + self.positions[:length]
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits
