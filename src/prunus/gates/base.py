"""The gate: a parametrization `w -> g(w)` of one weight tensor."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn


class Gate(nn.Module):
    """Base of all gates.

    A gate maps the weight `w` that is trained to the weight the network computes with. Every gate
    knows the binary mask it stands for, and can compute with that mask alone (`hard`).
    """

    hard: bool = False
    """While true, the gate multiplies by its binary mask instead of anything softer."""

    hard_in_eval: bool = False
    """Whether evaluation mode (`model.eval()`) computes with the binary mask as well."""

    scale: float = 1.0
    """Factor on every weight that is kept; folded into the weights when the gate is stripped."""

    round_mask: Tensor | None
    """The mask that the last round committed to, until the next step. The gate itself may no longer
    know it, because it was reset for the next round."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("round_mask", None, persistent=False)

    def forward(self, w: Tensor) -> Tensor:
        hard = self.hard or (self.hard_in_eval and not self.training)
        return masked(self.effective(w), self.mask()) if hard else self.soft(w)

    def mask(self) -> Tensor:
        """The binary mask `m` as a bool tensor of the weight's shape."""
        return self.decide() if self.round_mask is None else self.round_mask

    # What a gate defines

    def soft(self, w: Tensor) -> Tensor:
        """The weight that the network computes with while searching."""
        raise NotImplementedError

    def decide(self) -> Tensor:
        """The mask as the gate is now."""
        raise NotImplementedError

    def effective(self, w: Tensor) -> Tensor:
        """What a weight counts as when the binary mask keeps it."""
        return w if self.scale == 1.0 else w * self.scale

    def fold(self, w: Tensor) -> None:
        """Write what a kept weight counts as into the weight itself, when the search is over."""

    def unscale(self) -> None:
        """From here on a kept weight counts as itself."""

    def soft_mask(self) -> Tensor:
        """What the gate multiplies by now, one value per gate; the mask itself if it is binary."""
        return self.mask().float()

    def __call__(self, w: Tensor) -> Tensor:
        return cast(Tensor, super().__call__(w))


def learned(weight: Tensor, start: float) -> nn.Parameter:
    """A parameter of the weight's shape, all at `start`: float32, or wider if the weight is."""
    dtype = torch.promote_types(weight.dtype, torch.float32)
    return nn.Parameter(torch.full_like(weight, start, dtype=dtype).detach())


def masked(w: Tensor, mask: Tensor) -> Tensor:
    """`m * w`, exactly zero where the mask is False, whatever `w` holds there."""
    return torch.where(mask, w, w.new_zeros(()))
