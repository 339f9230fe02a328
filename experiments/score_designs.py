"""Other ways to move the scores of CS with a budget, for comparison; and a Muon-like optimiser."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from prunus import ContinuousSparsification
from prunus.methods.common.budget import move_scores, shift_scores, spread
from prunus.methods.common.competition import EVERYTHING
from prunus.methods.common.schedules import cosine
from prunus.methods.settings import setting


class Geometric(ContinuousSparsification):
    """`beta` in units of the spread rises as `first * rise^p * last^max(0, 10p - 9)`, `p = t/T`.

    The gradient of step `t` counts `tilt^p`, with `falls` times half a cosine.
    """

    first: float = setting("`beta` in units of the spread at the start", default=0.1)
    rise: float = setting("how many times it grows", default=200.0)
    last: float = setting("how many times more in the last tenth", default=10.0)
    tilt: float = setting("how much more the last gradient counts than the first", default=1.0)
    falls: bool = setting("whether that falls to zero in the end", default=False)

    def on_step(self) -> None:
        gates, p = list(self.gates.values()), self.t / self.steps
        move_scores(gates, cosine(self.tilt**p, p) if self.falls else self.tilt**p)
        if self.t & (self.t - 1) == 0 or self.t % max(1, self.steps // 200) == 0:
            shift_scores(gates, EVERYTHING.towards(self.targets[0], p / 0.8))
            self._spread = spread(gates)
        beta = self.first * self.rise**p * self.last ** max(0.0, 10 * p - 9)
        for gate in gates:
            gate.temperature.fill_(beta / self._spread)


class ScoresBySGD(ContinuousSparsification):
    """Plain SGD for the scores, at a constant rate, whatever moves the weights.

    All else is the paper's way: make it with `scores="optimiser"`.
    """

    rate: float = setting("of the scores", default=1.0)

    def param_groups(self, lr: float, groups: Any = None, **options: Any) -> list[dict[str, Any]]:
        return super().param_groups(lr, groups, **options)[:-1]

    def on_step(self) -> None:
        with torch.no_grad():
            for gate in self.gates.values():
                if gate.score.grad is not None:
                    self.move(gate.score, gate.score.grad)
                gate.score.grad = None
        super().on_step()

    def move(self, score: Tensor, gradient: Tensor) -> None:
        score.sub_(gradient, alpha=self.rate)


class ScoresNormalised(ScoresBySGD):
    """Momentum SGD, divided by the root mean square of *all* gradients of scores and by root T.

    That is one number for the whole network, a running mean, so that ratios between layers stay.
    """

    def on_attach(self) -> None:
        super().on_attach()
        self._velocity: dict[Tensor, Tensor] = {}
        self._mean_square = 0.0

    def on_step(self) -> None:
        found = [g.score.grad for g in self.gates.values() if g.score.grad is not None]
        count = max(1, sum(g.numel() for g in found))
        now = float(sum(g.square().sum() for g in found)) / count
        self._mean_square = 0.99 * self._mean_square + 0.01 * now
        super().on_step()

    def move(self, score: Tensor, gradient: Tensor) -> None:
        mean_square = self._mean_square / (1 - 0.99**self.t)
        velocity = self._velocity.setdefault(score, torch.zeros_like(score))
        velocity.mul_(0.9).add_(gradient)
        score.sub_(velocity, alpha=self.rate / (mean_square * self.steps + 1e-30) ** 0.5)


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum for the groups with `muon=True`, Adam for all others."""

    def __init__(self, groups: list[dict[str, Any]], lr: float) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, "muon": False})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # noqa: ARG002 (as torch declares it)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.mul_(1 - group["lr"] * group["weight_decay"])
                change = self._muon(p) if group["muon"] else self._adam(p)
                p.sub_(change, alpha=group["lr"])

    def _muon(self, p: Tensor) -> Tensor:
        assert p.grad is not None
        m = self.state[p].setdefault("m", torch.zeros_like(p)).mul_(0.95).add_(p.grad)
        step = _orthogonal((p.grad + 0.95 * m).flatten(1))
        rows, columns = step.shape
        return step.view_as(p) * max(1, rows / columns) ** 0.5

    def _adam(self, p: Tensor) -> Tensor:
        assert p.grad is not None
        state = self.state[p]
        if not state:
            state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
        state["t"] += 1
        m, v = state["m"].lerp_(p.grad, 0.1), state["v"].lerp_(p.grad**2, 0.05)
        unbiased: Tensor = (v / (1 - 0.95 ** state["t"])).sqrt()
        return m / (1 - 0.9 ** state["t"]) / (unbiased + 1e-8)


def _orthogonal(x: Tensor) -> Tensor:
    """About `U V^T` of `x = U S V^T`: five Newton-Schulz iterations."""
    tall = x.shape[0] > x.shape[1]
    x = (x.T if tall else x) / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (2.0315 * a @ a - 4.7750 * a) @ x
    return x.T if tall else x
