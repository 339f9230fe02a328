"""The gate: a parametrization `w -> g(w)` of one weight tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from prunus.errors import AttachError


class UnderGateError(AttachError, NotImplementedError):
    """An assignment to a gated weight. PyTorch tries one when it puts the gate on, and takes
    `NotImplementedError` for an answer."""


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

    round_mask: Tensor | None = None
    """The mask that the last round committed to, until the next step. The gate itself may no longer
    know it, because it was reset for the next round. Not a buffer: averages of a model
    (`AveragedModel`) go through its buffers in pairs with those of a copy, which may hold none."""

    def forward(self, w: Tensor) -> Tensor:
        return masked(self.effective(w), self.mask()) if self.is_hard else self.soft(w)

    @property
    def is_hard(self) -> bool:
        """Whether it computes with the binary mask now."""
        return self.hard or (self.hard_in_eval and not self.training)

    def mask(self) -> Tensor:
        """The binary mask `m` as a bool tensor of the weight's shape."""
        return self.decide() if self.round_mask is None else self.round_mask

    def right_inverse(self, _: Tensor) -> Tensor:
        """Refuses `module.weight = value`: there is no weight that a gate would turn into it."""
        raise UnderGateError(
            "a weight under a gate cannot be replaced by another tensor (`module.weight = ...`, as "
            "tie_weights does): change the model first, then attach"
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # For `model.to(torch.bfloat16)`: scores move in steps too small for 16 bits.
        super()._apply(lambda tensor: _in_float32(fn(tensor), tensor), recurse)  # type: ignore[no-untyped-call]
        if self.round_mask is not None:
            self.round_mask = fn(self.round_mask)
        return self

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

    def scale_like(self, other: Gate) -> None:
        """From here on a kept weight counts as it does under `other`, of which this is a copy."""

    def soft_mask(self) -> Tensor:
        """What the gate multiplies by now, one value per gate; the mask itself if it is binary."""
        return self.mask().float()

    if TYPE_CHECKING:

        def __call__(self, w: Tensor) -> Tensor: ...


def wide(dtype: torch.dtype) -> torch.dtype:
    """What gates compute with beside weights of this type: float32, or wider if these are."""
    return torch.promote_types(dtype, torch.float32)


def learned(weight: Tensor, start: float) -> nn.Parameter:
    """A wide parameter of the weight's shape, all at `start`."""
    return nn.Parameter(torch.full_like(weight, start, dtype=wide(weight.dtype)).detach())


def _in_float32(converted: Tensor, before: Tensor) -> Tensor:
    """`converted`, or `before` in its place and layout if that has fewer than 32 bits."""
    if not converted.is_floating_point() or converted.dtype == wide(converted.dtype):
        return converted
    return torch.empty_like(converted, dtype=wide(converted.dtype)).copy_(before)


def masked(w: Tensor, mask: Tensor) -> Tensor:
    """`m * w`, exactly zero where the mask is False, whatever `w` holds there."""
    return torch.where(mask, w, w.new_zeros(()))
