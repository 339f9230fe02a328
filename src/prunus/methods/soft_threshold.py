"""Soft Threshold weight Reparameterisation, STR (Kusupati et al.)."""

from __future__ import annotations

import math
from typing import Annotated, Any

from prunus.gates import SoftThresholdGate
from prunus.methods.base import Method
from prunus.methods.common.families import Rewinding
from prunus.methods.common.groups import Groups
from prunus.methods.settings import Governed, Must, setting
from prunus.selection import Candidate

PULL = 0.2
"""The automatic `threshold_decay` times `score_lr` times the steps of a round."""
MOST = 0.01
"""The highest automatic `threshold_decay`, for rounds of very few steps."""


class SoftThresholdReparameterisation(Rewinding, Method[SoftThresholdGate]):
    """Learn one threshold per layer: the network computes with `sign(w) * relu(|w| - sigmoid(s))`.

    Every `s` starts at `s_init` and has a weight decay of its own, `threshold_decay`, which pulls
    it to zero: that raises the threshold and removes weights, until the loss objects. The larger it
    is, the fewer weights are kept. `harden` writes what is left of the weights into them and sets
    the thresholds to zero, so that fine-tuning trains the kept weights freely.
    """

    name = "str"
    governed = Governed("threshold_decay", few=3e-3, many=3e-4, logarithmic=True)
    why_empty = (
        ": every weight is below its layer's threshold. Use a lower s_init or a smaller "
        "threshold_decay"
    )

    s_init: float = setting(
        "where `s` starts",
        default=-5.0,
        must=Must(math.isfinite, "thresholds start at sigmoid(s_init), so it must be a number"),
    )
    threshold_decay: float | None = setting(
        "weight decay of `s` (None: `0.2 / (score_lr * steps)`, at most 0.01)",
        default=None,
        must=Must(lambda value: 0 <= value < math.inf, "a weight decay is zero or positive"),
    )

    def make_gate(self, candidate: Candidate) -> SoftThresholdGate:
        return SoftThresholdGate(candidate.parameter, self.s_init)

    def param_groups(
        self,
        lr: float,
        groups: Groups | None = None,
        *,
        score_lr: Annotated[
            float | None, "learning rate of `s` (None: that of the weights)"
        ] = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Two groups: the weights, and `s` with `threshold_decay`."""
        rate = lr if score_lr is None else score_lr
        decay = self.threshold_decay
        if decay is None:
            decay = PULL / max(rate * self.steps, PULL / MOST)
        own = self.gate_group(rate, options, weight_decay=decay)
        return [*super().param_groups(lr, groups, **options), own]

    def on_attach(self) -> None:
        self._observe()

    def on_step(self) -> None:
        self._observe()

    def rewind(self) -> None:
        super().rewind()
        self._observe()

    def _observe(self) -> None:
        for name, weight in self.weights.items():
            self.gates[name].observe(weight)
