"""Concrete Ticket Search, with GradBalance and the reverse KL objective (Arora and Teuscher)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prunus.errors import SettingError
from prunus.gates import ConcreteGate, Watcher, stop_watching
from prunus.masks import Mask
from prunus.methods.common.families import EndsAtDensity
from prunus.methods.common.processes import sum_over_processes
from prunus.methods.common.ranking import keep_density, magnitudes
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Must, setting
from prunus.selection import Candidate

_SCALE = 100.0
"""Factor on the objective, which would otherwise be small beside Adam's epsilon."""
_SLACK = 1.1
"""GradBalance lets the expected density exceed the target by this factor."""
_SMOOTHING = 0.01
"""The weight of the newest value in GradBalance's moving average."""
_SLOW, _DROP = 0.8, 0.1
"""From this fraction of the search on, the scores' rate is multiplied by this factor."""
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
"""Adam's, for the scores."""


class ConcreteTicketSearch(EndsAtDensity[ConcreteGate]):
    """Find the mask of a ticket while the weights wait at `w^(k)`, then train what it keeps.

    For the first `k = rewind_step` steps (None: 0) the network trains densely. In the next
    `search * T` steps the weights stay at `w^(k)`, and every weight has a score `s`: a mask is
    drawn with the probability `sigmoid(s)` of keeping it, relaxed to a concrete variable. The
    objective is `KL(sparse || dense)` between the outputs with this mask and without
    (`objective="kl"`), or the loss itself. Scores start at `logit(target_density)` and are moved by
    Adam with `score_lr`, a tenth of it in the last fifth of the search, along

        dL/ds + lambda * d/ds sum sigmoid(s).

    GradBalance: while more than 1.1 times the target is kept on average, `lambda` goes to where
    both terms have the same norm, and otherwise to zero. Then the highest scores of the network
    are kept, and their weights train on from `w^(k)` for the rest of the round. Further rounds
    keep the mask.

    In the search layers compute as in evaluation: BatchNorm uses the statistics that the dense
    network had at `w^(k)`, and nothing drops out. What the optimiser does then is undone.
    """

    name = "cts"
    decides_once = True

    search: float = setting(
        "how long the mask is learned, as a fraction of the round",
        default=0.125,
        must=Must(lambda part: 0 < part <= 1, "the search is a part of the round"),
    )
    score_lr: float = setting(
        "learning rate of the scores",
        default=0.1,
        must=Must(lambda rate: 0 < rate < math.inf, "the scores' rate must be positive"),
    )
    objective: Literal["kl", "loss"] = setting(
        'what the mask is to preserve: "kl" the outputs of the dense network, which have to be a '
        'tensor of logits; "loss" the loss',
        default="kl",
    )

    def prepare(self) -> None:
        self.first_step = self.rewind_step or 0  # k
        self.last_step = self.first_step + max(1, round(self.search * self.steps))

    def make_gate(self, candidate: Candidate) -> ConcreteGate:
        d = self.target_density
        return ConcreteGate(candidate.parameter, math.log(d / (1 - d)) if d < 1 else 10.0)

    def on_attach(self) -> None:
        self._strength: float | None = None  # lambda
        self._waiting: Mapping[str, Tensor] | None = None  # w^(k), while the mask is learned
        self._enter()

    def on_step(self) -> None:
        if self.round == 1 and self.first_step < self.t <= self.last_step:
            self._move_scores()
            self._keep({name: gate.score for name, gate in self.gates.items()})
            self._restore()
        self._enter()

    def on_commit(self, evaluate: Evaluate | None) -> Mask:
        if self.round == 1 and self.t < self.first_step:
            return Mask(keep_density(magnitudes(self.weights), None, self.target_density))
        return super().on_commit(evaluate)

    def on_round_end(self) -> None:
        mask = self.mask()
        for name, gate in self.gates.items():
            gate.kept.copy_(mask[name])
            gate.enter("decided")
        self._waiting = None
        self._unwatch()

    def state_dict(self) -> dict[str, Any]:
        own = {"strength": self._strength, "waiting": self._waiting}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._strength, self._waiting = state["strength"], state["waiting"]
        self._enter()

    def _enter(self) -> None:
        """Have the gates do what the next step needs."""
        searching = self.round == 1 and self.first_step <= self.t < self.last_step
        before = self.round == 1 and self.t < self.first_step
        for gate in self.gates.values():
            gate.enter("open" if before else "searching" if searching else "decided")
        if searching and self._waiting is None:
            self._waiting = self._snapshot()
            self._keep(magnitudes(self.weights))  # until a score has moved
        elif not searching:
            self._waiting = None
        self._unwatch()
        if searching:
            self._watch()

    def _watch(self) -> None:
        """Have forward passes that are trained by computed and measured as the search needs."""
        model, stilled = self.model, list[nn.Module]()
        model.register_forward_pre_hook(_Still(stilled))
        if self.objective == "kl":
            model.register_forward_hook(_Teacher(self), with_kwargs=True)
        model.register_forward_hook(_Stir(stilled), always_call=True)

    def _unwatch(self) -> None:
        for kind in (_Still, _Teacher, _Stir):
            stop_watching(self.model, kind)

    @property
    def is_drawing(self) -> bool:
        """Whether forward passes draw masks: in training, while the mask is learned."""
        return any(gate.training for gate in self.gates.values())

    def distil(self, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        """In the backward pass from `output`, have the KL divergence take the loss's place."""
        if not isinstance(output, Tensor):
            raise SettingError(
                f"objective='kl' needs a model that returns a tensor of logits, and this one "
                f"returns {type(output).__name__}: set objective='loss'"
            )
        try:
            for gate in self.gates.values():
                gate.phase = "open"
            with torch.no_grad():
                dense = self.model(*arguments, **keywords).float().log_softmax(-1)
        finally:
            for gate in self.gates.values():
                gate.phase = "searching"
        with torch.enable_grad():
            logits = output.detach().float().requires_grad_()
            sparse = logits.log_softmax(-1)
            divergence = F.kl_div(dense, sparse, reduction="batchmean", log_target=True)
            (gradient,) = torch.autograd.grad(divergence, logits)
        output.register_hook(lambda _: gradient.to(output.dtype))

    @torch.no_grad()
    def _move_scores(self) -> None:
        found = {n: g.gradient for n, g in self.gates.items() if g.gradient is not None}
        if not found:  # no backward pass came here
            return
        gates = [self.gates[name] for name in found]
        of_task = [_SCALE * sum_over_processes(gradient) for gradient in found.values()]
        probabilities = [torch.sigmoid(gate.score) for gate in gates]
        of_size = [p * (1 - p) for p in probabilities]
        expected = sum(float(p.sum()) for p in probabilities)
        allowed = _SLACK * self.target_density * sum(p.numel() for p in probabilities)
        balanced = _norm(of_task) / max(_norm(of_size), 1e-12) if expected > allowed else 0.0
        if self._strength is None:
            self._strength = balanced
        self._strength += _SMOOTHING * (balanced - self._strength)
        n = self.t - self.first_step
        is_late = n > _SLOW * (self.last_step - self.first_step)
        rate = self.score_lr * (_DROP if is_late else 1.0)
        for gate, task, size in zip(gates, of_task, of_size, strict=True):
            g = task.add_(size, alpha=self._strength)
            gate.first_moment.lerp_(g, 1 - _BETA1)
            gate.second_moment.mul_(_BETA2).addcmul_(g, g, value=1 - _BETA2)
            root = (gate.second_moment / (1 - _BETA2**n)).sqrt_().add_(_EPSILON)
            gate.score.addcdiv_(gate.first_moment, root, value=-rate / (1 - _BETA1**n))

    @torch.no_grad()
    def _restore(self) -> None:
        assert self._waiting is not None
        for place in self._places:
            place.tensor.copy_(self._waiting[place.name])

    def _keep(self, ranks: Mapping[str, Tensor]) -> None:
        for name, kept in keep_density(ranks, None, self.target_density).items():
            self.gates[name].kept.copy_(kept)


def _norm(parts: list[Tensor]) -> float:
    return math.sqrt(sum(float(part.square().sum()) for part in parts))


class _Still(Watcher):
    """Before a forward pass in training: have layers compute as in evaluation, but not gates."""

    def __init__(self, stilled: list[nn.Module]) -> None:
        self.stilled = stilled

    def __call__(self, module: nn.Module, _: tuple[Any, ...]) -> None:
        if module.training:
            layers = (m for m in module.modules() if not isinstance(m, ConcreteGate))
            self.stilled.extend(layer for layer in layers if layer.training)
            for layer in self.stilled:
                layer.training = False


class _Stir(Watcher):
    """After the pass: as before it."""

    def __init__(self, stilled: list[nn.Module]) -> None:
        self.stilled = stilled

    def __call__(self, *_: Any) -> None:
        while self.stilled:
            self.stilled.pop().training = True


class _Teacher(Watcher):
    """Shows the method what the model gets and gives, in forward passes that are trained by."""

    def __init__(self, method: ConcreteTicketSearch) -> None:
        self.method = method

    def __call__(
        self, _: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any
    ) -> None:
        if self.method.is_drawing and torch.is_grad_enabled() and not self.method.hardened:
            # Not as a decorator, which would load the compiler whenever prunus is imported.
            torch.compiler.disable(self.method.distil)(arguments, keywords, output)
