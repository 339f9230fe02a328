"""What every sparsification method has in common: its life on a model, from attaching to a ticket.

A method attaches gates to a model and is told of every training step and every end of a round.
Subclasses say which gates, which penalty, and what happens at those moments; they know nothing of
data, devices, files or the training loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal
from warnings import warn

import torch
from torch import Tensor, nn

from prunus import gates as gating
from prunus.errors import AttachError, PrunusWarning
from prunus.gates import Gate
from prunus.gates.base import masked
from prunus.masks import Mask
from prunus.methods.checks import check
from prunus.methods.statistics import Statistics, statistics
from prunus.selection import Candidate, Select, choose
from prunus.ticket import Manifest, Ticket

Evaluate = Callable[[], float]
"""The accuracy (or any score, higher is better) of the model as it is, on held-out data."""


class Method(ABC):
    """A sparsification algorithm at work on one model.

    `steps` is the number of training steps in a round (`T`), `rewind_step` the step `k` of the
    first round whose weights `w^(k)` become those of a ticket (0: the weights at attaching; None:
    keep no copy), and `rewind` whether the weights go back to `w^(k)` between rounds. With
    `freeze_weights` only the gates learn: the mask makes a network of random weights (supermask).
    """

    name: ClassVar[str]
    """What the command line, the results and the tickets call this method."""

    why_empty: ClassVar[str] = ""
    """Ends the warning that nothing is left: what it means for this method, and what helps."""

    added_settings: ClassVar[Mapping[str, object]] = {}
    """Settings that a later version added, and the value at which all is as before: runs
    that are older keep their folders."""

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int,
        select: Select = "paper",
        rewind_step: int | None = 0,
        rewind: bool = False,
        freeze_weights: bool = False,
    ) -> None:
        check(steps > 0, f"steps={steps}: a round needs at least one training step")
        check(
            rewind_step is None or 0 <= rewind_step <= steps,
            f"rewind_step={rewind_step} is not between 0 and the {steps} steps of a round",
        )
        check(
            not rewind or rewind_step is not None,
            "rewind=True needs a rewind_step to go back to; it is None",
        )
        gating.check_attachable(model)
        self.model = model
        self.steps = steps
        self.rewind_step = rewind_step
        self.rewinds = rewind
        self.round = 1
        self.t = 0
        self.hardened = False
        self._committed = False  # in this round; a mask is held from then until the next step
        self._rewound = False  # since the last step
        self.selection = choose(model, select)
        self._select = select if isinstance(select, str) else [c.name for c in self.selection]
        self.gates: dict[str, Gate] = {c.name: self.make_gate(c) for c in self.selection}
        self.check_gates()
        try:
            for candidate in self.selection:
                gating.attach(candidate, self.gates[candidate.name])
        except BaseException:
            gating.remove(model)  # all gates or none
            raise
        self._rewind_point = self._snapshot() if rewind_step == 0 else None
        self.freeze_weights = freeze_weights
        if freeze_weights:
            gating.freeze(model)

    # What a method defines

    @abstractmethod
    def make_gate(self, candidate: Candidate) -> Gate:
        """The gate for one parameter."""

    def check_gates(self) -> None:  # noqa: B027
        """Raise `SettingError` if the gates, none attached yet, cannot do what was asked for."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that make this run what it is, as plain data; methods add their own."""
        return {
            "steps": self.steps,
            "select": self._select,
            "rewind_step": self.rewind_step,
            "rewind": self.rewinds,
            "freeze_weights": self.freeze_weights,
        }

    @property
    def needs_evaluate(self) -> bool:
        """Whether it chooses among masks by their accuracy, and so needs `evaluate` to commit."""
        return False

    def on_step(self) -> None:  # noqa: B027 (many methods have nothing to do here)
        """Called after each optimiser step; `self.t` is the number of steps in this round."""

    def on_commit(self, evaluate: Evaluate | None) -> Mask:  # noqa: ARG002 (few methods try masks)
        """Decide the mask of this round. By default it is the one that the gates stand for."""
        return self.mask()

    def check_rounds(self, rounds: int) -> None:  # noqa: B027
        """Raise `SettingError` if the settings do not suffice for that many rounds."""

    def on_round_end(self) -> None:  # noqa: B027
        """Prepare the gates for another round, after this one has committed to its mask."""

    # What the training loop calls

    def param_groups(self, lr: float, **options: Any) -> list[dict[str, Any]]:
        """Parameter groups for any optimiser; `options` are the optimiser's own for the weights."""
        self._check_attached()
        weights = self._trained_weights()
        return [{**options, "params": weights, "lr": lr}] if weights else []

    def gate_group(
        self, lr: float, options: Mapping[str, Any], *, weight_decay: float = 0.0
    ) -> dict[str, Any]:
        """A parameter group of what the gates learn: by default without weight decay."""
        own = [p for gate in self.gates.values() for p in gate.parameters()]
        return {**options, "params": own, "lr": lr, "weight_decay": weight_decay}

    def penalty(self) -> Tensor:
        """What to add to the loss; zero for methods without a penalty."""
        self._check_attached()
        return next(self.model.parameters()).new_zeros(())

    def step(self) -> None:
        """Tell the method that the optimiser made a step. Does nothing once hardened."""
        self._check_attached()
        if self.hardened:
            return
        self.t += 1
        if self._holds:
            self._hold(None)
        self._committed = self._rewound = False
        if self.round == 1 and self.t == self.rewind_step:
            self._rewind_point = self._snapshot()
        self.on_step()

    def commit(self, evaluate: Evaluate | None = None) -> Mask:
        """Decide the mask that this round found; it holds until the next `step`.

        A few methods try several masks and keep the best: `evaluate` tells them how good the model
        is with the present one, on held-out data.
        """
        self._check_attached()
        if not self._holds:
            self._decide(evaluate)
        return self.mask()

    def _decide(self, evaluate: Evaluate | None) -> None:
        self._hold(None)
        self._hold(self.on_commit(evaluate))
        self._committed = True

    def end_round(self, evaluate: Evaluate | None = None) -> Mask:
        """Close a round and make ready for the next; returns the mask that the round found.

        Commits to that mask (see `commit`) unless this has been done. Make a new optimiser for the
        next round: the momentum of the old one belongs to weights and scores that are reset now.
        """
        self._check_attached()
        if self.hardened:
            raise AttachError("the mask is fixed since harden(): there are no rounds any more")
        if self.rewinds:
            self._rewind_weights()  # raises, before anything changes, if there are none
        if not self._committed:
            self._decide(evaluate)
        mask = self.mask()
        self.on_round_end()
        self.round += 1
        self.t = 0
        self._committed = False
        if self.rewinds:
            self.rewind()
        return mask

    # What the user asks for

    def mask(self) -> Mask:
        """The binary mask now; between two rounds, the one that the last round found."""
        return Mask({name: gate.mask() for name, gate in self.gates.items()})

    def stats(self) -> Statistics:
        """Densities and gates in transition, as data and (printed) as a table."""
        return statistics(self.gates)

    @contextmanager
    def hard(self) -> Iterator[nn.Module]:
        """Within this context the model computes with its binary mask."""
        self._check_attached()
        with gating.hard(self.model):
            yield self.model

    def ticket(
        self,
        weights: Literal["rewind", "current"] = "rewind",
        *,
        task: str = "",
        seed: int | None = None,
        metrics: Mapping[str, float] | None = None,
        whole: bool = False,
    ) -> Ticket:
        """The mask with the weights `w^(k)` to re-train from, or with the `"current"` ones.

        A round that has begun commits to its mask, if it has not (see `commit`). The rest is
        provenance; `whole` also stores the weights that the mask removes.
        """
        mask = self._final_mask()
        if not mask.kept:
            warn(f"the mask removes every weight{self.why_empty}", PrunusWarning, stacklevel=2)
        tensors = self._rewind_weights() if weights == "rewind" else self._current_weights(mask)
        manifest = Manifest(
            task=task,
            method=self.name,
            settings={**self.settings, "round": self.round - (self.t == 0 and self.round > 1)},
            seed=seed,
            rewind_point=self.rewind_step if weights == "rewind" else None,
            metrics=dict(metrics or {}),
        )
        return Ticket(mask, tensors, manifest, whole=whole)

    def rewind(self) -> None:
        """Set weights and buffers back to `w^(k)`; masks and scores stay as they are."""
        self._check_attached()
        snapshot = self._rewind_weights()
        with torch.no_grad():
            for name, tensor in gating.plain_tensors(self.model).items():
                tensor.copy_(snapshot[name])
        self._rewound = True

    def harden(self, evaluate: Evaluate | None = None) -> Mask:
        """Commit to the mask (see `commit`) and stop the search: the kept weights train on alone.

        Removed weights are exactly zero from here on, and optimisers need no change (but after
        `freeze_weights`, whose weights may train now, make a new one). DDP does: wrap the model
        again, because it expects gradients of all that had them when it was wrapped.
        """
        mask = self.commit(evaluate)
        self._fix_gates(True)
        with torch.no_grad():
            for gate, weight in gating.gated_parameters(self.model).values():
                if self._rewound:  # what the search learned was for other weights than w^(k)
                    gate.unscale()
                else:
                    gate.fold(weight)
        return mask

    def try_mask(self, mask: Mapping[str, Tensor], evaluate: Evaluate | None) -> float:
        """For methods that choose among masks when they commit: how good the model is with one."""
        check(
            evaluate is not None,
            f"{self.name} compares masks by their accuracy: give commit, end_round or harden an "
            "evaluate function that returns the model's accuracy on held-out data",
        )
        assert evaluate is not None
        self._hold(mask)
        try:
            with self.hard():
                return evaluate()
        finally:
            self._hold(None)  # a mask that was tried is not one that the round committed to

    def strip(self) -> nn.Module:
        """Make the mask permanent and leave: plain modules with zeros in place.

        A round that has begun commits to its mask, if it has not (see `commit`).
        """
        self._final_mask()
        return gating.strip(self.model)

    def remove(self) -> nn.Module:
        """Leave the model dense, with the weights as trained, and no trace of the method."""
        self._check_attached()
        return gating.remove(self.model)

    def state_dict(self) -> dict[str, Any]:
        """The method's own state; the model's `state_dict` has the scores and weights."""
        return {
            "method": self.name,
            "settings": self.settings,
            "round": self.round,
            "t": self.t,
            "hardened": self.hardened,
            "committed": self._committed,
            "rewound": self._rewound,
            "round_mask": dict(self.mask()) if self._holds else None,
            "rewind_point": self._rewind_point,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up where `state_dict` was taken, in any order with the model's own."""
        self._check_attached()
        check(
            state["method"] == self.name,
            f"this state is of method {state['method']!r}, but this method is {self.name!r}",
        )
        for name, value in self.settings.items():
            before = state["settings"].get(name, value)  # a newer version may have more settings
            check(
                before == value,
                f"this state was made with {name}={before!r}, but this method "
                f"has {name}={value!r}; make the method with the same settings",
            )
        self.round, self.t = state["round"], state["t"]
        self._committed, self._rewound = state["committed"], state["rewound"]
        self._hold(state["round_mask"])
        self._rewind_point = state["rewind_point"]
        self._fix_gates(state["hardened"])

    # Details

    @property
    def _holds(self) -> bool:
        return next(iter(self.gates.values())).round_mask is not None

    def _hold(self, mask: Mapping[str, Tensor] | None) -> None:
        for name, (gate, weight) in gating.gated_parameters(self.model).items():
            gate.round_mask = None if mask is None else mask[name].to(weight.device)

    def _trained_weights(self) -> list[nn.Parameter]:
        """What is trained, without the gates' own parameters."""
        own = {id(p) for gate in self.gates.values() for p in gate.parameters()}
        return [p for p in self.model.parameters() if p.requires_grad and id(p) not in own]

    def _final_mask(self) -> Mask:
        self._check_attached()
        return self.commit() if self.t else self.mask()

    def _fix_gates(self, fixed: bool) -> None:
        self.hardened = fixed
        if self.freeze_weights:
            (gating.unfreeze if fixed else gating.freeze)(self.model)
        for gate in self.gates.values():
            gate.hard = fixed
            for parameter in gate.parameters():
                parameter.requires_grad_(not fixed)
                parameter.grad = None  # without a gradient, no optimiser touches it

    def _snapshot(self) -> dict[str, Tensor]:
        tensors = gating.plain_tensors(self.model)
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def _rewind_weights(self) -> Mapping[str, Tensor]:
        if self._rewind_point is None:
            raise AttachError(
                "there are no weights w^(k) yet: "
                + (
                    "the method was made with rewind_step=None"
                    if self.rewind_step is None
                    else f"step {self.rewind_step} of round 1 has not been reached"
                )
                + "; ticket(weights='current') takes the weights as they are now"
            )
        return self._rewind_point

    def _current_weights(self, mask: Mask) -> dict[str, Tensor]:
        tensors = self._snapshot()
        for name, gate in self.gates.items():
            kept = mask[name].to(tensors[name].device)
            tensors[name] = masked(gate.kept(tensors[name]), kept)
        return tensors

    def _check_attached(self) -> None:
        first = self.selection[0]
        if not gating.is_attached(first, self.gates[first.name]):
            raise AttachError("this method has left its model (strip or remove); attach a new one")
