"""Network Slimming (Liu et al.) weight by weight, as in the paper's comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any

from torch import Tensor

from prunus.gates import ScalingGate
from prunus.masks import Mask
from prunus.methods.common.budgeted import RanksWeights
from prunus.methods.common.families import Penalised, Rewinding
from prunus.methods.common.groups import Groups
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Must, setting
from prunus.selection import Candidate


class NetworkSlimming(Rewinding, RanksWeights[ScalingGate], Penalised[ScalingGate]):
    """Train weights `w` and factors `g` together: `L(f(.; g * w)) + lambda_1 * ||g||_1`.

    When a round commits, the weights with the smallest `|g|` in the whole network are removed, so
    that `target_density` of them are kept; these count as `g * w`. Until then nothing is removed.
    The factors start at `scaling_init` and have no weight decay. `penalty` (`lambda_1`) is 1e-5 in
    the paper for ResNet-20, and 1e-6 for VGG-16.
    """

    name = "netslim"

    penalty_strength = 1e-5
    scaling_init: float = setting(
        "where the factors start",
        default=1.0,
        must=Must(
            lambda value: 0 < value < math.inf,
            "factors start at a positive number (1 changes nothing)",
        ),
    )

    def make_gate(self, candidate: Candidate) -> ScalingGate:
        return ScalingGate(candidate.parameter, self.scaling_init)

    def param_groups(
        self,
        lr: float,
        groups: Groups | None = None,
        *,
        scaling_lr: Annotated[
            float | None, "learning rate of the factors (None: that of the weights)"
        ] = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Two groups: the weights, and the factors without weight decay."""
        own = self.gate_group(lr if scaling_lr is None else scaling_lr, options)
        return [*super().param_groups(lr, groups, **options), own]

    def penalty_terms(self) -> Iterator[Tensor]:
        """`||g||_1`."""
        return (gate.scaling.abs() for gate in self.gates.values())

    def on_commit(self, _: Evaluate | None) -> Mask:
        ranks = {name: gate.scaling.detach().abs() for name, gate in self.gates.items()}
        return Mask(self.keep(ranks, self.mask(), self.budget))
