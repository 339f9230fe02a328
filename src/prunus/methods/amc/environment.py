"""What AMC's agent acts in: one episode is one walk through the layers of the network.

Needs the extra `amc`; nothing imports this before the method `amc` is made.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite, prod
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from prunus.methods.settings import check
from prunus.selection import KINDS, Candidate

Array = NDArray[np.float32]
Counts = tuple[int, ...]
"""How many weights each layer keeps."""


class AMCEnvironment(gymnasium.Env[Array, Array]):
    """The action is the fraction of a layer that is kept, from `min_keep` to 1.

    As in AMC's algorithm 1 it is bounded so that the later layers can still meet the budget; here
    from both sides, so that every episode ends with exactly the target density. Only the end of an
    episode is rewarded, by `reward(counts)`, which is called once for equal counts.
    """

    def __init__(
        self,
        layers: Sequence[Candidate],
        target_density: float,
        min_keep: float,
        reward: Callable[[Counts], float],
    ) -> None:
        self.sizes = [layer.parameter.numel() for layer in layers]
        self.fewest = [int(min_keep * size) for size in self.sizes]
        self.total = sum(self.sizes)
        self.budget = round(target_density * self.total)
        self.rewards: dict[Counts, float] = {}
        self.counts: list[int] = []
        self._reward = reward
        self._descriptions = _descriptions(layers)
        features = self._descriptions.shape[1] + 3
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (features,), np.float32)
        self.action_space = gymnasium.spaces.Box(min_keep, 1.0, (1,), np.float32)

    @property
    def best(self) -> Counts:
        """The counts of highest reward, the earliest if there are several."""
        return max(self.rewards, key=self.rewards.__getitem__)

    def bounds(self) -> tuple[int, int]:
        """The fewest and the most weights that the present layer may keep."""
        t, left = len(self.counts), self.budget - sum(self.counts)
        fewest = max(self.fewest[t], left - sum(self.sizes[t + 1 :]))
        most = min(self.sizes[t], left - sum(self.fewest[t + 1 :]))
        return fewest, most

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.counts = []
        return self._observation(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        fewest, most = self.bounds()
        wanted = round(float(action[0]) * self.sizes[len(self.counts)])
        self.counts.append(min(max(wanted, fewest), most))
        done = len(self.counts) == len(self.sizes)
        reward = self._final_reward(tuple(self.counts)) if done else 0.0
        return self._observation(), reward, done, False, {}

    def _final_reward(self, counts: Counts) -> float:
        if counts not in self.rewards:
            # What evaluating draws at random must not move the agent's generators.
            with own_randomness(), torch.no_grad():
                reward = self._reward(counts)
            check(isfinite(reward), f"evaluate returned {reward}: AMC needs a finite score")
            self.rewards[counts] = reward
        return self.rewards[counts]

    def _observation(self) -> Array:
        """The layer to decide on (after the last one: that one), and what was done so far."""
        t = len(self.counts)
        seen, kept = sum(self.sizes[:t]), sum(self.counts)
        reduced, rest = (seen - kept) / self.total, sum(self.sizes[t + 1 :]) / self.total
        last = self.counts[-1] / self.sizes[t - 1] if t else 1.0
        layer = self._descriptions[min(t, len(self.sizes) - 1)]
        return np.concatenate([layer, np.array([reduced, rest, last], np.float32)])


def _descriptions(layers: Sequence[Candidate]) -> Array:
    """For each layer: index, kind, outputs, inputs, kernel, weights, each divided by the largest of
    all layers; and its share of all weights."""
    kinds = [*KINDS, "other"]
    rows = [[i, kinds.index(c.kind), *_shape(c), c.parameter.numel()] for i, c in enumerate(layers)]
    table = np.array(rows, np.float64)
    share = table[:, -1:] / table[:, -1].sum()
    return np.hstack([table / table.max(axis=0).clip(min=1.0), share]).astype(np.float32)


def _shape(candidate: Candidate) -> tuple[int, int, int]:
    """The first two axes, outputs and inputs of most kinds, and the size of the kernel."""
    outputs, inputs, *kernel = (*candidate.parameter.shape, 1, 1)[
        : max(2, candidate.parameter.dim())
    ]
    return outputs, inputs, prod(kernel)


@contextmanager
def own_randomness() -> Iterator[None]:
    """Whatever happens inside, the global generators are afterwards as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
