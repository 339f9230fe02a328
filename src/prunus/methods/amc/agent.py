"""AMC's agent: DDPG of stable-baselines3 with the settings of the code of He et al. (2018).

Needs the extra `amc`; nothing imports this before the method `amc` is made.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import DDPG
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.utils import update_learning_rate
from torch.optim import Optimizer

from prunus.methods.amc.environment import AMCEnvironment, own_randomness

_ACTOR_LR, _CRITIC_LR = 1e-4, 1e-3
_SIGMA, _DECAY = 1.0, 0.95
"""Of the noise on actions in [-1, 1]; AMC's sigma of 0.5 is for actions in [0, 1]."""


def attempt(environment: AMCEnvironment, *, episodes: int, warmup: int, seed: int) -> None:
    """Let a new agent make `episodes` attempts, `warmup` of them at random, and learn from them.

    All that it draws comes from `seed`, and the generators of the run stay as they are. It computes
    on the CPU in every process, so that all processes make the same attempts.
    """
    layers = len(environment.sizes)
    with own_randomness(), torch.inference_mode(False), torch.enable_grad():
        agent = _DDPG(
            "MlpPolicy",
            environment,
            learning_rate=_CRITIC_LR,
            buffer_size=100 * layers,
            learning_starts=warmup * layers,
            batch_size=64,
            tau=0.01,
            gamma=1.0,
            train_freq=(1, "episode"),
            gradient_steps=-1,  # as many as the episode had steps
            n_steps=layers,  # each action is credited with the reward at the end of its episode
            action_noise=_Noise(warmup),
            policy_kwargs={"net_arch": [300, 300]},
            seed=seed,
            device="cpu",
        )
        agent.set_logger(Logger(folder=None, output_formats=[]))  # which writes nothing anywhere
        agent.learn(episodes * layers)


class _DDPG(DDPG):
    """With AMC's two learning rates; the library knows one for both networks."""

    def _update_learning_rate(self, optimizers: list[Optimizer] | Optimizer) -> None:
        super()._update_learning_rate(optimizers)
        update_learning_rate(self.actor.optimizer, _ACTOR_LR)


class _Noise(ActionNoise):
    """Normal noise that fades from episode to episode; none while attempts are random anyway."""

    def __init__(self, warmup: int) -> None:
        super().__init__()
        self._episode = -warmup - 1  # learn() resets once before the first

    def reset(self) -> None:
        self._episode += 1

    def __call__(self) -> NDArray[np.float32]:
        sigma = _SIGMA * _DECAY**self._episode if self._episode >= 0 else 0.0
        return np.random.normal(0.0, sigma, 1).astype(np.float32)
