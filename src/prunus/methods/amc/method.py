"""AMC: an agent chooses how much of each layer to keep (He et al. 2018), here of single weights."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from torch import Tensor

from prunus.errors import SettingError, how_to_install
from prunus.gates import FixedGate
from prunus.masks import Mask
from prunus.methods.common.families import EndsAtDensity, FixedMaskMethod, Rewinding, Seeded
from prunus.methods.common.ranking import keep_highest, magnitudes
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Must, check, setting


class AMC(Rewinding, Seeded, EndsAtDensity[FixedGate], FixedMaskMethod):
    """Train the whole network; at the end of a round, cut it to `target_density` at once.

    Within a layer the weights of largest magnitude stay. How many stay in each layer is what a DDPG
    agent learns in `episodes` attempts, the first `warmup` of them at random: it walks through the
    layers, keeps at least the fraction `min_keep` of each, and is rewarded by the accuracy on
    held-out data. The best attempt of all is the mask. The same `seed` makes the same attempts.
    Further rounds train on and keep the mask.
    """

    name = "amc"
    decides_once = True

    episodes: int = setting(
        "the agent's attempts",
        default=100,
        must=Must(lambda n: n > 0, "the agent needs at least one attempt"),
    )
    warmup: int = setting("how many of the attempts are random", default=25)
    min_keep: float = setting("the least fraction of a layer that is kept", default=0.01)

    def prepare(self) -> None:
        check(
            0 <= self.min_keep <= self.target_density,
            f"min_keep={self.min_keep}: the fraction kept of every layer is between 0 and "
            f"target_density={self.target_density}, which could not be reached otherwise",
        )
        check(
            0 <= self.warmup <= self.episodes,
            f"warmup={self.warmup}: the random attempts are some of the {self.episodes} episodes; "
            "give a number between 0 and that",
        )
        _check_installed()

    @property
    def needs_evaluate(self) -> bool:
        return True

    def on_commit(self, evaluate: Evaluate | None) -> Mask:
        if self.round > 1:
            return self.mask()
        from prunus.methods.amc.agent import attempt
        from prunus.methods.amc.environment import AMCEnvironment

        ranks = magnitudes(self.weights)
        environment = AMCEnvironment(
            self.selection,
            self.target_density,
            self.min_keep,
            reward=lambda counts: self.try_mask(_keep(ranks, counts), evaluate),
        )
        attempt(environment, episodes=self.episodes, warmup=self.warmup, seed=self.seed)
        return Mask(_keep(ranks, environment.best))


def _keep(ranks: dict[str, Tensor], counts: Sequence[int]) -> dict[str, Tensor]:
    """The highest ranks of each layer, as many as its count."""
    layers = zip(ranks.items(), counts, strict=True)
    return {name: keep_highest({name: rank}, None, n)[name] for (name, rank), n in layers}


def _check_installed() -> None:
    try:
        import_module("prunus.methods.amc.agent")
    except ImportError as error:
        raise SettingError(
            f"the method amc needs stable-baselines3 and gymnasium, which cannot be imported here "
            f"({error}): {how_to_install('amc')}"
        ) from error
