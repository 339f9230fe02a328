"""PILoT: continuous sparsification by an implicit bias that is controlled (Jacobs and Burkholz)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from prunus.gates import ScalingGate
from prunus.masks import Mask
from prunus.methods.common.families import EndsAtDensity, Penalised
from prunus.methods.common.groups import Groups, without
from prunus.methods.common.ranking import keep_density
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Must, setting
from prunus.selection import Candidate

UPDATES = 100
"""How often the strength of the penalty changes in a round."""

_REST = 0.01
"""The share of `||m * w||_1` in the weights to be removed at which the network is sparse enough."""


class PILoT(EndsAtDensity[ScalingGate], Penalised[ScalingGate]):
    """Train factors of each weight: `L(f(.; m * w)) + alpha * (||m||_2^2 + ||w||_2^2)`.

    With `m` beside `w` gradient descent prefers sparse networks by itself, the more so the longer
    `alpha` was high. They start with `m * w` as the weight was and `m^2 - w^2 = 1`, from where a
    weight can still change its sign. `alpha` begins at `penalty`. A hundred times in a round it is
    multiplied by `growth`, or divided by it: divided in the second half, and as soon as less than
    1 % of `||m * w||_1` is in the weights that a cut to `target_density` would remove. That cut, by
    `|m * w|` in the whole network, comes when the round commits.

    The paper goes by epochs, by a bound on `||m * w||_1` in place of the 1 %, and lets `alpha` rise
    only after an epoch in which training accuracy rose, which a method does not see here.
    """

    name = "pilot"

    penalty_strength = 1e-4
    growth: float = setting(
        "`delta`: the factor by which the strength of the penalty changes",
        default=1.1,
        must=Must(lambda factor: 1 <= factor < 2, "the strength changes by a factor from 1 to 2"),
    )

    def make_gate(self, candidate: Candidate) -> ScalingGate:
        return ScalingGate(candidate.parameter, 1.0)

    @torch.no_grad()
    def on_attach(self) -> None:
        self._rise = 1.0  # alpha, in units of its start
        for name, weight in self.weights.items():
            # m^2 - w^2 = 1 with m * w = x: m^2 is the positive root of m^4 - m^2 - x^2
            m = ((1 + (1 + 4 * weight.square()).sqrt()) / 2).sqrt()
            self.gates[name].scaling.copy_(m)
            weight.div_(m)

    def param_groups(
        self, lr: float, groups: Groups | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """Yours without `m` and `w`, and one with them, which the penalty decays already."""
        given = super().param_groups(lr, groups, **options)
        if self.hardened:
            return given
        own = self.penalised()
        rest = list(without({id(parameter) for parameter in own}, given))
        return [*rest, {**options, "params": own, "lr": lr, "weight_decay": 0.0}]

    def penalised(self) -> list[nn.Parameter]:
        weights = list(self.weights.values())
        return [*super().penalised(), *weights]

    def penalty_terms(self) -> Iterator[Tensor]:
        """`||m||_2^2 + ||w||_2^2`, times what `alpha` has risen by."""
        return (self._rise * parameter.square() for parameter in self.penalised())

    def on_step(self) -> None:
        if self.t % max(1, round(self.steps / UPDATES)) == 0:
            rises = self.t <= self.steps / 2 and not self._is_sparse()
            self._rise = self._rise * self.growth if rises else self._rise / self.growth

    def on_commit(self, _: Evaluate | None) -> Mask:
        return Mask(keep_density(self._magnitudes(), None, self.target_density))

    def on_round_end(self) -> None:
        self._rise = 1.0

    def remove(self) -> nn.Module:
        self._check_attached()
        with torch.no_grad():
            for name, weight in self.weights.items():
                self.gates[name].fold(weight)
        return super().remove()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "rise": self._rise}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._rise = state["rise"]

    @torch.no_grad()
    def _magnitudes(self) -> dict[str, Tensor]:
        """`|m * w|`."""
        return {name: self.gates[name].effective(w).abs() for name, w in self.weights.items()}

    def _is_sparse(self) -> bool:
        sizes = self._magnitudes()
        kept = keep_density(sizes, None, self.target_density)
        inside = sum(float(size[kept[name]].sum()) for name, size in sizes.items())
        return inside >= (1 - _REST) * sum(float(size.sum()) for size in sizes.values())
