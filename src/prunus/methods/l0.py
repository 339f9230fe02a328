"""l0 regularisation with hard concrete gates (Louizos et al.), weight by weight."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from prunus.gates import HardConcreteGate
from prunus.masks import Mask
from prunus.methods.common.families import Freezable, Penalised, Rewinding, Seeded, sampler
from prunus.methods.common.groups import Groups
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Governed, Must, setting
from prunus.selection import Candidate

RATE_STEPS = 400_000
"""The automatic `score_lr` times the steps of a round, in units of the weights' `lr`."""


class L0Regularisation(Rewinding, Freezable, Seeded, Penalised[HardConcreteGate]):
    """Minimise `E[L(f(.; z * w))] + lambda * sum P(z > 0)`, where `z` is hard concrete.

    The `penalty` is the cost of each kept weight; it governs the density. A round commits to gates
    by one of two rules. `"sample"` draws `samples` sets of gates from `seed` and the round's
    number, and keeps the one with the best accuracy on held-out data (the paper's modification;
    with `samples=1` no data is needed). `"expected"` is the original's test-time rule, which the
    paper reports to fail at high sparsity. Either way the mask is `z > 0`, and a kept weight counts
    as `z * w`.
    """

    name = "l0"
    governed = Governed("penalty", few=1e-3, many=1e-4, logarithmic=True)
    why_empty = ": no gate is open. Use a smaller penalty, a smaller score_lr or a larger keep_init"

    penalty_strength = 1e-4
    keep_init: float = setting(
        "gates start at `log_alpha = logit(keep_init)`",
        default=0.5,
        must=Must(lambda p: 0 < p < 1, "gates start with a probability between 0 and 1"),
    )
    rule: Literal["sample", "expected"] = setting(
        "what a round commits to: the best of several samples, or the expected gates",
        default="sample",
    )
    samples: int = setting(
        "how many sets of gates are drawn",
        default=10,
        must=Must(lambda n: n >= 1, "at least one set of gates has to be drawn"),
    )

    def make_gate(self, candidate: Candidate) -> HardConcreteGate:
        return HardConcreteGate(candidate.parameter, self.keep_init)

    def param_groups(
        self,
        lr: float,
        groups: Groups | None = None,
        *,
        score_lr: Annotated[
            float | None, "learning rate of the gates (None: `lr * 400,000 / steps`, at least `lr`)"
        ] = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Two groups: the weights, and `log_alpha` without weight decay.

        The gradient of a single weight's gate is tiny, so that with the weights' rate no gate would
        ever close. Unless given, `score_lr` is `lr * 400,000 / steps`, at least `lr`: then, with
        SGD and momentum, the default penalty alone nearly closes a gate within a round of any
        length, and those that the loss needs stay open. Adam's steps do not depend on the size of
        gradients: with it, give 0.01 or so.
        """
        if score_lr is None:
            score_lr = lr * max(1.0, RATE_STEPS / self.steps)
        own = self.gate_group(score_lr, options)
        return [*super().param_groups(lr, groups, **options), own]

    def penalty_terms(self) -> Iterator[Tensor]:
        """`sigmoid(log_alpha - beta * log(-gamma / zeta))`, the expected l0 of each weight."""
        return (gate.soft_mask() for gate in self.gates.values())

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
