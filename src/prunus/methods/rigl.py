"""RigL: sparse from the start, and connections move to where gradients are large (Evci et al.)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from prunus.gates import GrowingGate
from prunus.masks import drawn_flags
from prunus.methods.common.families import EndsAtDensity, Seeded, sampler
from prunus.methods.common.processes import sum_over_processes
from prunus.methods.common.ranking import keep_highest
from prunus.methods.common.schedules import cosine
from prunus.methods.settings import Must, setting
from prunus.selection import Candidate

UPDATES = 100
"""About how many updates of the mask a round has, unless `every` says otherwise."""


class RigL(Seeded, EndsAtDensity[GrowingGate]):
    """Train a sparse network whose connections move; it has `target_density` at all times.

    The first mask is random. After every `every`-th step `t < T_end = end * T` of a round, each
    layer drops the smallest of its present weights, a fraction of

        fraction / 2 * (1 + cos(pi * t / T_end)),

    and adds as many absent ones, those with the largest gradients. What has just been dropped may
    return at once; what was absent before starts at zero.
    """

    name = "rigl"

    fraction: float = setting(
        "`alpha`: the fraction of a layer's weights that the first update replaces",
        default=0.3,
        must=Must(lambda alpha: 0 <= alpha < 1, "the fraction replaced is from 0 to below 1"),
    )
    end: float = setting(
        "`T_end`, as a fraction of the round: when the mask is final",
        default=0.75,
        must=Must(lambda end: 0 < end <= 1, "updates end at a fraction of the round, at most 1"),
    )
    every: int | None = setting(
        "`Delta T`: steps between two updates (None: chosen so that there are about 100)",
        default=None,
        must=Must(lambda steps: steps >= 1, "there is at least one step between updates"),
    )
    layers: Literal["erk", "uniform"] = setting(
        'the density of each layer: Erdos-Renyi-Kernel, higher in small layers, or "uniform"',
        default="erk",
    )

    def prepare(self) -> None:
        self.last_step = self.end * self.steps  # T_end
        self.interval = self.every or max(1, round(self.last_step / UPDATES))

    def make_gate(self, candidate: Candidate) -> GrowingGate:
        return GrowingGate(candidate.parameter)

    def on_attach(self) -> None:
        shapes = {c.name: tuple(c.parameter.shape) for c in self.selection}
        densities = dict.fromkeys(shapes, self.target_density)
        if self.layers == "erk":
            densities = erk_densities(shapes, self.target_density)
        self.counts = _counts(shapes, densities, self.target_density)
        generator = sampler(self.seed, 0)
        for name, gate in self.gates.items():
            drawn = drawn_flags(self.counts[name], gate.present.numel(), generator)
            gate.present.copy_(drawn.view(gate.present.shape))
        self._listen(1)

    def on_step(self) -> None:
        if self._updates_at(self.t):
            self._update()
        self._listen(self.t + 1)

    def on_round_end(self) -> None:
        self._listen(1)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._listen(self.t + 1)

    def _updates_at(self, t: int) -> bool:
        return t % self.interval == 0 and t < self.last_step

    def _listen(self, t: int) -> None:
        """Let the gates collect dense gradients if the mask is updated after step `t`."""
        for name, weight in self.weights.items():
            self.gates[name].listen(weight if self._updates_at(t) else None)

    @torch.no_grad()
    def _update(self) -> None:
        fraction = cosine(self.fraction, self.t / self.last_step)
        for name, weight in self.weights.items():
            gate, count = self.gates[name], int(fraction * self.counts[name])
            gradient = gate.dense_gradient
            if gradient is None:  # no backward pass came here
                continue
            sum_over_processes(gradient)
            before = gate.present.clone()
            stay = keep_highest({name: weight.abs()}, {name: before}, self.counts[name] - count)
            come = keep_highest({name: gradient.abs()}, {name: ~stay[name]}, count)
            gate.present.copy_(stay[name] | come[name])
            weight.masked_fill_(come[name] & ~before, 0.0)


def erk_densities(shapes: Mapping[str, Sequence[int]], density: float) -> dict[str, float]:
    """Erdos-Renyi-Kernel: proportional to the sum of a tensor's sides over their product.

    `density` is that of all tensors together. One that would get more than all of its weights is
    dense.
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    raw = {name: sum(shape) / sizes[name] for name, shape in shapes.items()}
    dense: set[str] = set()
    while True:
        sparse = [name for name in shapes if name not in dense]
        left = density * sum(sizes.values()) - sum(sizes[name] for name in dense)
        scale = left / sum(raw[name] * sizes[name] for name in sparse) if sparse else 0.0
        exceeding = {name for name in sparse if scale * raw[name] > 1}
        if not exceeding:
            return {name: 1.0 if name in dense else scale * raw[name] for name in shapes}
        dense |= exceeding


def _counts(
    shapes: Mapping[str, Sequence[int]], densities: Mapping[str, float], density: float
) -> dict[str, int]:
    """How many weights each layer keeps, rounded so that together they are `density` of all."""
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    exact = {name: densities[name] * size for name, size in sizes.items()}
    counts = {name: min(sizes[name], int(value)) for name, value in exact.items()}
    missing = round(density * sum(sizes.values())) - sum(counts.values())
    room = [name for name in shapes if counts[name] < sizes[name]]
    for name in sorted(room, key=lambda n: counts[n] - exact[n])[:missing]:
        counts[name] += 1
    return counts
