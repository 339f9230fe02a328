"""Soft Threshold weight Reparameterisation, STR (Kusupati et al.)."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from prunus.gates import SoftThresholdGate, gated_parameters
from prunus.methods.base import Method
from prunus.methods.checks import check
from prunus.selection import Candidate, Select

PULL = 0.2
"""The automatic `threshold_decay` times `score_lr` times the steps of a round."""
MOST = 0.01
"""The highest automatic `threshold_decay`, for rounds of very few steps."""


class SoftThresholdReparameterisation(Method):
    """Learn one threshold per layer: the network computes with `sign(w) * relu(|w| - sigmoid(s))`.

    Every `s` starts at `s_init` and has a weight decay of its own, `threshold_decay`, which pulls
    it to zero: that raises the threshold and removes weights, until the loss objects. The larger it
    is, the fewer weights are kept. Unless given, it is `0.2 / (score_lr * steps)`, at most 0.01.
    `harden` writes what is left of the weights into them and sets the thresholds to zero, so that
    fine-tuning trains the kept weights freely.
    """

    name = "str"
    why_empty = (
        ": every weight is below its layer's threshold. Use a lower s_init or a smaller "
        "threshold_decay"
    )
    gates: dict[str, SoftThresholdGate]  # type: ignore[assignment]

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        s_init: float = -5.0,
        threshold_decay: float | None = None,
        select: Select = "paper",
        rewind_step: int | None = 0,
        rewind: bool = False,
    ) -> None:
        check(
            math.isfinite(s_init),
            f"s_init={s_init}: thresholds start at sigmoid(s_init), so it must be a number",
        )
        check(
            threshold_decay is None or (math.isfinite(threshold_decay) and threshold_decay >= 0),
            f"threshold_decay={threshold_decay}: a weight decay is zero or a positive number",
        )
        self.s_init = s_init
        self.threshold_decay = threshold_decay
        super().__init__(model, steps=steps, select=select, rewind_step=rewind_step, rewind=rewind)
        self._observe()

    def make_gate(self, candidate: Candidate) -> SoftThresholdGate:
        return SoftThresholdGate(candidate.parameter, self.s_init)

    def param_groups(
        self, lr: float, *, score_lr: float | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """Two groups: the weights, and `s` with `threshold_decay`.

        The rate `score_lr` of `s` is that of the weights unless given.
        """
        rate = lr if score_lr is None else score_lr
        decay = self.threshold_decay
        if decay is None:
            decay = PULL / max(rate * self.steps, PULL / MOST)
        own = self.gate_group(rate, options, weight_decay=decay)
        return [*super().param_groups(lr, **options), own]

    def on_step(self) -> None:
        self._observe()

    def rewind(self) -> None:
        super().rewind()
        self._observe()

    def _observe(self) -> None:
        for name, (_, weight) in gated_parameters(self.model).items():
            self.gates[name].observe(weight)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            **super().settings,
            "s_init": self.s_init,
            "threshold_decay": self.threshold_decay,
        }
