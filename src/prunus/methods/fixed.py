"""What methods have in common whose masks are not learned but set."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from prunus.gates import FixedGate
from prunus.methods.base import Method
from prunus.selection import Candidate


class FixedMaskMethod(Method):
    """Base of methods that put a binary mask on the weights and replace it now and then.

    The mask starts with every weight kept. `set_mask` replaces it; the one that a round commits to
    is that of the next round. Weights that it removes compute as zero and get no gradient.
    """

    why_empty = ": so few weights are to be kept that it comes to none. Keep more"
    gates: dict[str, FixedGate]  # type: ignore[assignment]

    def make_gate(self, candidate: Candidate) -> FixedGate:
        return FixedGate(torch.ones_like(candidate.parameter, dtype=torch.bool))

    def set_mask(self, mask: Mapping[str, Tensor]) -> None:
        """Train on with another mask."""
        for name, gate in self.gates.items():
            gate.fixed_mask.copy_(mask[name])

    def on_round_end(self) -> None:
        self.set_mask(self.mask())
