"""What a method defines: its settings, its gates, and what happens at each moment of its life."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar, Generic

from torch import nn
from typing_extensions import TypeVar

from prunus.errors import warn_caller
from prunus.gates import Gate, gate_of
from prunus.masks import Mask
from prunus.methods.lifecycle import LifeCycle, Moment
from prunus.methods.settings import Declared, Governed, Must, setting
from prunus.selection import Candidate, Select, Selection

Evaluate = Callable[[], float]
"""The accuracy (or any score, higher is better) of the model as it is, on held-out data."""

G = TypeVar("G", bound=Gate, default=Gate, covariant=True)
"""The kind of gate that a method works with."""


class Hooks(Declared, Generic[G]):
    """The settings and hooks of `Method`.

    What a method may read in `on_step`: weights, masks, and what its gates have collected in their
    backward pass. The gradients of parameters that `param_groups` hands to the optimiser may
    already be cleared. Those of parameters that a method keeps to itself are there.
    """

    name: ClassVar[str]
    """What results and tickets call this method; by default `package.module:Class`."""

    why_empty: ClassVar[str] = ""
    """The end of the warning that nothing is left: what it means for this method, what helps."""

    decides_once: ClassVar[bool] = False
    """Whether rounds after the first keep its mask."""

    decides_at_once: ClassVar[bool] = False
    """Whether the mask is final as soon as it is attached."""

    governed: ClassVar[Governed | None] = None
    """For methods without a target density: the setting that bisection brings them to one with."""

    model: nn.Module = field(kw_only=False)
    gates: dict[str, G] = field(init=False)
    """By the name of the parameter."""
    selection: Selection = field(init=False)
    life: LifeCycle = field(init=False)

    steps: int = setting(
        "`T`: training steps in a round",
        must=Must(lambda n: n > 0, "a round needs at least one training step"),
    )
    select: Select = setting("which parameters are sparsified", default="auto")
    exclude: Select | None = setting(
        "which of these are left out after all", default=None, added=True
    )
    rewind_step: int | None = setting(
        "`k`: the step of the first round whose weights `w^(k)` become those of tickets (0: those "
        "at attaching; None: no copy is kept)",
        default=0,
    )
    rewinds: bool = setting(
        "whether the weights return to `w^(k)` between rounds",
        default=False,
        alias="rewind",
        init=False,
    )
    freeze_weights: bool = setting("whether only the gates learn", default=False, init=False)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            cls.name = f"{cls.__module__}:{cls.__qualname__}"

    @classmethod
    def without_effect(cls, settings: Mapping[str, Any]) -> set[str]:  # noqa: ARG003 (few have any)
        """The settings that say nothing beside these others: runs do not record them."""
        return set()

    def make_gate(self, candidate: Candidate) -> G:
        """The gate for one parameter; every method has to define this."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Check settings against each other (`check`), and derive what follows from them."""

    def check_gates(self) -> None:
        """Raise `SettingError` if the gates, none attached yet, cannot do what was asked for."""

    def on_attach(self) -> None:
        """Called once, when the gates are on the model."""

    def on_step(self) -> None:
        """Called after each optimiser step; `self.t` is the number of steps in this round."""

    def on_commit(self, evaluate: Evaluate | None) -> Mask:  # noqa: ARG002 (few methods try masks)
        """Decide the mask of this round. By default it is the one that the gates stand for."""
        return self.mask()

    def mask(self) -> Mask:
        """The binary mask now; between two rounds, the one that the last round found."""
        return Mask({name: gate.mask() for name, gate in self.gates.items()})

    def on_round_end(self) -> None:
        """Prepare the gates for another round, after this one has committed to its mask."""

    def check_rounds(self, rounds: int) -> None:
        """Raise `SettingError` if the settings do not suffice for that many rounds.

        Warns of rounds that find nothing new.
        """
        if self.decides_once and rounds > 1:
            warn_caller(
                f"{self.name} decides its mask in one round: the other {rounds - 1} of {rounds} "
                "train on and keep it. Do one round",
            )

    @property
    def needs_evaluate(self) -> bool:
        """Whether it chooses among masks by their accuracy, and so needs `evaluate` to commit."""
        return False

    # Where the method stands

    @property
    def weights(self) -> dict[str, nn.Parameter]:
        """The weights that are trained under the gates, by the name of the parameter."""
        return {c.name: gate_of(c.module, c.owners[0][2])[1] for c in self.selection}

    @property
    def round(self) -> int:
        """The round under way or, between two, the next; the first is 1."""
        return self.life.round

    @property
    def t(self) -> int:
        """Training steps of this round."""
        return self.life.t

    @property
    def hardened(self) -> bool:
        """Whether the mask is final."""
        return self.life.moment is Moment.HARDENED
