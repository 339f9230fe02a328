"""l0 regularisation with hard concrete gates (Louizos et al.), weight by weight."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from prunus.gates import HardConcreteGate
from prunus.masks import Mask
from prunus.methods.base import Evaluate, Method
from prunus.methods.checks import check, check_choice
from prunus.methods.penalties import check_penalty, total
from prunus.methods.sampling import check_seed, sampler
from prunus.selection import Candidate, Select

RATE_STEPS = 400_000
"""The automatic `score_lr` times the steps of a round, in units of the weights' `lr`."""


class L0Regularisation(Method):
    """Minimise `E[L(f(.; z * w))] + lambda * sum P(z > 0)`, where `z` is hard concrete.

    - `penalty` (`lambda`): what one weight that is kept costs. The knob for density.
    - `keep_init`: gates start at `log_alpha = logit(keep_init)`.
    - `rule`: what a round commits to. `"sample"` draws `samples` sets of gates from `seed` and the
      round's number, and keeps the one with the best accuracy on held-out data (the paper's
      modification; with `samples=1` no data is needed). `"expected"` is the original's test-time
      rule, which the paper reports to fail at high sparsity. Either way the mask is `z > 0`, and a
      kept weight counts as `z * w`.
    """

    name = "l0"
    why_empty = ": no gate is open. Use a smaller penalty, a smaller score_lr or a larger keep_init"
    gates: dict[str, HardConcreteGate]  # type: ignore[assignment]

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        penalty: float = 1e-4,
        keep_init: float = 0.5,
        rule: Literal["sample", "expected"] = "sample",
        samples: int = 10,
        seed: int = 0,
        select: Select = "paper",
        rewind_step: int | None = 0,
        rewind: bool = False,
        freeze_weights: bool = False,
    ) -> None:
        check_penalty(penalty)
        check(
            0 < keep_init < 1,
            f"keep_init={keep_init}: gates start with a probability between 0 and 1",
        )
        check_choice("rule", rule, ("sample", "expected"))
        check(samples >= 1, f"samples={samples}: at least one set of gates has to be drawn")
        check_seed(seed)
        self.penalty_strength = penalty
        self.keep_init = keep_init
        self.rule = rule
        self.samples = samples
        self.seed = seed
        super().__init__(
            model,
            steps=steps,
            select=select,
            rewind_step=rewind_step,
            rewind=rewind,
            freeze_weights=freeze_weights,
        )

    def make_gate(self, candidate: Candidate) -> HardConcreteGate:
        return HardConcreteGate(candidate.parameter, self.keep_init)

    def param_groups(
        self, lr: float, *, score_lr: float | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """Two groups: the weights, and `log_alpha` without weight decay.

        The gradient of a single weight's gate is tiny, so that with the weights' rate no gate would
        ever close. Unless given, `score_lr` is `lr * 400,000 / steps`, at least `lr`: then, with
        SGD and momentum, the default penalty alone nearly closes a gate within a round of any
        length, and those that the loss needs stay open. Adam has no tiny gradients: give 0.01 or
        so.
        """
        if score_lr is None:
            score_lr = lr * max(1.0, RATE_STEPS / self.steps)
        own = self.gate_group(score_lr, options)
        return [*super().param_groups(lr, **options), own]

    def penalty(self) -> Tensor:
        """`lambda * sum sigmoid(log_alpha - beta * log(-gamma / zeta))`, the expected l0."""
        self._check_attached()
        if self.hardened or not self.penalty_strength:
            return super().penalty()
        return self.penalty_strength * total(gate.soft_mask() for gate in self.gates.values())

    @property
    def needs_evaluate(self) -> bool:
        return self.rule == "sample" and self.samples > 1

    @torch.no_grad()
    def on_commit(self, evaluate: Evaluate | None) -> Mask:
        if self.rule == "expected":
            return self._commit_to({name: gate.expected() for name, gate in self.gates.items()})
        generator = sampler(self.seed, self.round)
        best, best_score = None, -math.inf
        for _ in range(self.samples):
            z = {name: gate.sample(generator) for name, gate in self.gates.items()}
            mask = self._commit_to(z)
            score = self.try_mask(mask, evaluate) if self.needs_evaluate else 0.0
            if best is None or score > best_score:
                best, best_score = z, score
        assert best is not None
        return self._commit_to(best)

    def _commit_to(self, z: dict[str, Tensor]) -> Mask:
        for name, gate in self.gates.items():
            gate.committed.copy_(z[name])
        return Mask({name: value > 0 for name, value in z.items()})

    @property
    def settings(self) -> dict[str, Any]:
        return {
            **super().settings,
            "penalty": self.penalty_strength,
            "keep_init": self.keep_init,
            "rule": self.rule,
            "samples": self.samples,
            "seed": self.seed,
        }
