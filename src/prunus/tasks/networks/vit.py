"""A small vision transformer: pre-norm blocks around PyTorch's own multi-head attention."""

import torch
from torch import Tensor, nn

from prunus.errors import SettingError

_PATCHES_PER_SIDE = 8


class Block(nn.Module):
    """Attention and a two-layer perceptron, each normalised before and added after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        mixed: Tensor = x + self.mlp(self.norm2(x))
        return mixed


class VisionTransformer(nn.Module):
    """Patches, learned positions, blocks, the mean over patches, one linear layer."""

    def __init__(
        self,
        *,
        num_classes: int,
        image_size: int,
        channels: int,
        patch: int,
        width: int = 128,
        depth: int = 4,
        heads: int = 4,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.positions = nn.Parameter(torch.empty(1, (image_size // patch) ** 2, width))
        # As strong as the patches: with the usual 0.02, a short training never learns positions.
        nn.init.trunc_normal_(self.positions, std=1.0)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        logits: Tensor = self.head(self.norm(self.blocks(x)).mean(dim=1))
        return logits


def vit(*, num_classes: int, image_size: int, channels: int) -> nn.Module:
    """Four blocks of width 128 with four heads, on patches of about an eighth of the image."""
    patch = max(2, round(image_size / _PATCHES_PER_SIDE))
    if image_size % patch:
        near = max(1, image_size // _PATCHES_PER_SIDE) * _PATCHES_PER_SIDE
        raise SettingError(
            f"vit cuts images into patches of {patch}x{patch} pixels, which do not fill "
            f"{image_size}x{image_size}; use a multiple of {_PATCHES_PER_SIDE}, such as {near}"
        )
    return VisionTransformer(
        num_classes=num_classes, image_size=image_size, channels=channels, patch=patch
    )
