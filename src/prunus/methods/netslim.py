"""Network Slimming (Liu et al.) weight by weight, as the paper compares with it."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from prunus.gates import ScalingGate
from prunus.masks import Mask
from prunus.methods.base import Evaluate, Method
from prunus.methods.checks import check, check_density, check_reachable
from prunus.methods.penalties import check_penalty, total
from prunus.methods.ranking import keep_density
from prunus.selection import Candidate, Select


class NetworkSlimming(Method):
    """Train weights `w` and factors `g` together: `L(f(.; g * w)) + lambda_1 * ||g||_1`.

    When a round commits, the weights with the smallest `|g|` in the whole network leave, until
    `target_density` of them are kept; these count as `g * w`. Until then nothing is removed. The
    factors start at `scaling_init` and have no weight decay. `penalty` (`lambda_1`) is 1e-5 in the
    paper for ResNet-20, and 1e-6 for VGG-16.
    """

    name = "netslim"
    gates: dict[str, ScalingGate]  # type: ignore[assignment]

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        target_density: float = 0.1,
        penalty: float = 1e-5,
        scaling_init: float = 1.0,
        select: Select = "paper",
        rewind_step: int | None = 0,
        rewind: bool = False,
    ) -> None:
        check_density(target_density)
        check_penalty(penalty)
        check(
            math.isfinite(scaling_init) and scaling_init > 0,
            f"scaling_init={scaling_init}: factors start at a positive number (1 changes nothing)",
        )
        self.target_density = target_density
        self.penalty_strength = penalty
        self.scaling_init = scaling_init
        super().__init__(model, steps=steps, select=select, rewind_step=rewind_step, rewind=rewind)

    def make_gate(self, candidate: Candidate) -> ScalingGate:
        return ScalingGate(candidate.parameter, self.scaling_init)

    def param_groups(
        self, lr: float, *, scaling_lr: float | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """Two groups: the weights, and the factors without weight decay.

        The factors' rate `scaling_lr` is that of the weights unless given.
        """
        rate = lr if scaling_lr is None else scaling_lr
        own = self.gate_group(rate, options)
        return [*super().param_groups(lr, **options), own]

    def penalty(self) -> Tensor:
        """`lambda_1 * ||g||_1`."""
        self._check_attached()
        if self.hardened or not self.penalty_strength:
            return super().penalty()
        return self.penalty_strength * total(gate.scaling.abs() for gate in self.gates.values())

    def on_commit(self, _: Evaluate | None) -> Mask:
        ranks = {name: gate.scaling.detach().abs() for name, gate in self.gates.items()}
        return Mask(keep_density(ranks, self.mask(), self.target_density))

    def check_gates(self) -> None:
        check_reachable(self.target_density, self.selection)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            **super().settings,
            "target_density": self.target_density,
            "penalty": self.penalty_strength,
            "scaling_init": self.scaling_init,
        }
