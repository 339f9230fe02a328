"""AMC: an agent chooses how much of each layer to keep (He et al. 2018), here of single weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from prunus.errors import SettingError
from prunus.masks import Mask
from prunus.methods.base import Evaluate
from prunus.methods.checks import check, check_density, check_reachable
from prunus.methods.fixed import FixedMaskMethod
from prunus.methods.ranking import keep_highest, magnitudes
from prunus.methods.sampling import check_seed
from prunus.selection import Select


class AMC(FixedMaskMethod):
    """Train the whole network; at the end of a round, cut it to `target_density` at once.

    Within a layer the weights of largest magnitude stay. How many stay in each layer is what a DDPG
    agent learns in `episodes` attempts, the first `warmup` of them at random: it walks through the
    layers, keeps at least the fraction `min_keep` of each, and is rewarded by the accuracy on
    held-out data. The best attempt of all is the mask. The same `seed` makes the same attempts.
    Further rounds train on and keep the mask.
    """

    name = "amc"

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        target_density: float = 0.1,
        episodes: int = 100,
        warmup: int = 25,
        min_keep: float = 0.01,
        seed: int = 0,
        select: Select = "paper",
        rewind_step: int | None = 0,
        rewind: bool = False,
    ) -> None:
        check_density(target_density)
        check(
            0 <= min_keep <= target_density,
            f"min_keep={min_keep}: the fraction kept of every layer is between 0 and "
            f"target_density={target_density}, which could not be reached otherwise",
        )
        check(episodes > 0, f"episodes={episodes}: the agent needs at least one attempt")
        check(
            0 <= warmup <= episodes,
            f"warmup={warmup}: the random attempts are some of the {episodes} episodes; give a "
            "number between 0 and that",
        )
        check_seed(seed)
        _check_installed()
        self.target_density, self.min_keep = target_density, min_keep
        self.episodes, self.warmup, self.seed = episodes, warmup, seed
        super().__init__(model, steps=steps, select=select, rewind_step=rewind_step, rewind=rewind)

    @property
    def needs_evaluate(self) -> bool:
        return True

    def on_commit(self, evaluate: Evaluate | None) -> Mask:
        if self.round > 1:
            return self.mask()
        from prunus.methods.amc_agent import attempt
        from prunus.methods.amc_environment import AMCEnvironment

        ranks = magnitudes(self.model)
        environment = AMCEnvironment(
            self.selection,
            self.target_density,
            self.min_keep,
            reward=lambda counts: self.try_mask(_keep(ranks, counts), evaluate),
        )
        attempt(environment, episodes=self.episodes, warmup=self.warmup, seed=self.seed)
        return Mask(_keep(ranks, environment.best))

    def check_gates(self) -> None:
        check_reachable(self.target_density, self.selection)

    @property
    def settings(self) -> dict[str, Any]:
        own = ("target_density", "episodes", "warmup", "min_keep", "seed")
        return {**super().settings, **{name: getattr(self, name) for name in own}}


def _keep(ranks: dict[str, Tensor], counts: Sequence[int]) -> dict[str, Tensor]:
    """The highest ranks of each layer, as many as its count."""
    return {
        name: keep_highest({name: rank}, {name: torch.ones_like(rank, dtype=torch.bool)}, n)[name]
        for (name, rank), n in zip(ranks.items(), counts, strict=True)
    }


def _check_installed() -> None:
    try:
        import prunus.methods.amc_agent  # noqa: F401
    except ImportError as error:
        raise SettingError(
            f"the method amc needs stable-baselines3 and gymnasium, which cannot be imported here "
            f"({error}): pip install -e '.[amc]' in the Prunus clone"
        ) from error
