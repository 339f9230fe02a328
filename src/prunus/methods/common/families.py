"""What families of methods share: a target density, a penalty, a mask that is set, randomness."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from prunus.gates import FixedGate
from prunus.methods.base import Method
from prunus.methods.common.competition import Scope
from prunus.methods.common.targets import check_reachable
from prunus.methods.hooks import G
from prunus.methods.settings import DENSITY, Declared, Must, setting
from prunus.selection import Candidate


class Rewinding(Declared):
    """Methods whose weights may return to `w^(k)` between rounds."""

    rewinds: bool = setting(
        "whether the weights return to `w^(k)` between rounds", default=False, alias="rewind"
    )


class Freezable(Declared):
    """Methods that can learn the mask alone."""

    freeze_weights: bool = setting(
        "whether only the gates learn: the mask makes a network of random weights (supermask)",
        default=False,
    )


class Scoped(Declared):
    """Methods that rank weights either in each layer or in the whole network."""

    scope: Scope = setting(
        "where weights compete: in each layer or in the whole network", default="layer"
    )


class Seeded(Declared):
    """Methods that draw random numbers."""

    seed: int = setting(
        "determines everything that the method draws at random",
        default=0,
        must=Must(lambda seed: 0 <= seed < 2**32, "a seed is between 0 and 2^32 - 1"),
    )


def sampler(seed: int, round_number: int) -> torch.Generator:
    """For what a round draws as it commits: on the CPU, so that all processes draw the same."""
    return torch.Generator().manual_seed(seed * 2**20 + round_number)


class EndsAtDensity(Method[G]):
    """Methods that end at a given density."""

    target_density: float = setting("the fraction of weights to keep", default=0.1, must=DENSITY)

    def check_gates(self) -> None:
        check_reachable(self.target_density, sum(c.parameter.numel() for c in self.selection))


class Penalised(Method[G]):
    """Methods that add a penalty to the loss: its strength times the sum of its terms."""

    penalty_strength: float = setting(
        "`lambda`: strength of the penalty",
        default=1e-8,
        alias="penalty",
        must=Must(lambda value: 0 <= value < math.inf, "lambda must be zero or a positive number"),
    )

    def penalty_terms(self) -> Iterable[Tensor]:
        """The tensors whose elements the penalty adds up."""
        raise NotImplementedError

    def penalty(self) -> Tensor:
        """`lambda` times the sum of the penalty's terms; zero once hardened."""
        nothing = super().penalty()
        if self.hardened or not self.penalty_strength:
            return nothing
        return self.penalty_strength * total(self.penalty_terms())


def total(parts: Iterable[Tensor]) -> Tensor:
    """The sum of all elements of all `parts`, which may be on several devices."""
    sums = [part.sum() for part in parts]
    return torch.stack([s.to(sums[0].device) for s in sums]).sum()


class FixedMaskMethod(Method[FixedGate]):
    """Methods that put a binary mask on the weights and replace it from time to time.

    The mask starts with every weight kept. `set_mask` replaces it; the next round starts
    with the mask that the last one committed to. Removed weights count as zero and get no gradient.
    """

    why_empty = ": so few weights are to be kept that it comes to none. Keep more"

    def make_gate(self, candidate: Candidate) -> FixedGate:
        return FixedGate(torch.ones_like(candidate.parameter, dtype=torch.bool))

    def set_mask(self, mask: Mapping[str, Tensor]) -> None:
        """Continue with another mask."""
        for name, gate in self.gates.items():
            gate.fixed_mask.copy_(mask[name])

    def on_round_end(self) -> None:
        self.set_mask(self.mask())
