"""The base of all methods: its life on a model, from attaching to a ticket.

A method attaches gates to a model and is told of every training step (`Loop`) and every end of a
round. Subclasses define `Hooks`; they know nothing of data, devices, files or the training loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from prunus import gates as gating
from prunus.errors import AttachError, SearchWarning, SelectionWarning, SettingError, warn_caller
from prunus.gates.base import masked
from prunus.masks import Mask
from prunus.methods.common.misuse import no_step
from prunus.methods.common.statistics import Statistics, statistics
from prunus.methods.hooks import Evaluate, G
from prunus.methods.lifecycle import LifeCycle, Moment
from prunus.methods.loop import Loop
from prunus.methods.settings import check
from prunus.selection import choose, default_rule
from prunus.tickets.ticket import Manifest, Ticket

_LITTLE = 0.5
"""Of all parameters, below which a selection that nobody spelt out is worth a warning."""


class Method(Loop[G]):
    """A sparsification algorithm at work on one model."""

    def __init__(self, model: nn.Module, **settings: Any) -> None:
        self._take_settings(settings)
        self.model = model
        k, steps = self.rewind_step, self.steps
        check(
            k is None or 0 <= k <= steps,
            f"rewind_step={k} is not between 0 and the {steps} steps of a round",
        )
        can_rewind = k is not None or not self.rewinds
        check(can_rewind, "rewind=True needs a rewind_step to go back to; it is None")
        self.prepare()
        gating.check_attachable(model)
        self.life = LifeCycle()
        self._following = None
        self._withheld = []
        self._select()
        self.gates = {c.name: self.make_gate(c) for c in self.selection}
        self.check_gates()
        try:
            for candidate in self.selection:
                gating.attach(candidate, self.gates[candidate.name])
        except BaseException:
            gating.remove(model)  # all gates or none
            raise
        gating.refuse_changes(model, self.selection)
        gating.mark_saved(model, self.selection)
        self._places = gating.places(model)
        self._rewind_weights = self._snapshot() if k == 0 else None
        if self.freeze_weights:
            gating.freeze(model)
        self.on_attach()

    # What happens to a round

    def commit(self, evaluate: Evaluate | None = None) -> Mask:
        """Decide the mask that this round found; it holds until the next `step`.

        A few methods try several masks and keep the best: `evaluate` tells them how good the model
        is with the present one, on held-out data.
        """
        self._check_attached()
        if not self.life.holds_mask:
            self._decide(evaluate)
        return self.mask()

    def end_round(self, evaluate: Evaluate | None = None) -> Mask:
        """Close a round and prepare the next; returns the mask that the round found.

        Commits to that mask (see `commit`) unless this has been done. Make a new optimiser for the
        next round: the momentum of the old one belongs to weights and scores that are reset now.
        """
        self._check_attached()
        if self.hardened:
            raise AttachError("the mask is fixed since harden(): there are no rounds any more")
        if self.rewinds:
            self._weights_to_rewind_to()  # raises, before anything changes, if there are none
        if self.life.moment is not Moment.COMMITTED:
            self._decide(evaluate)
        mask = self.mask()
        self.on_round_end()
        self.life.end_round()
        if self.rewinds:
            self.rewind()
        return mask

    # What the user asks for

    def stats(self) -> Statistics:
        """Densities and gates in transition, as data and (printed) as a table."""
        return statistics(self.gates, gating.count_parameters(self.model))

    def hard(self) -> AbstractContextManager[nn.Module]:
        """Within this context the model computes with its binary mask."""
        self._check_attached()
        return gating.hard(self.model)

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
        rewinding = weights == "rewind"
        tensors = self._weights_to_rewind_to() if rewinding else self._current_weights(mask)
        manifest = Manifest(
            task=task,
            method=self.name,
            settings={**self.settings, "round": self.life.last_round},
            seed=seed,
            rewind_point=self.rewind_step if rewinding else None,
            metrics=dict(metrics or {}),
        )
        return Ticket(mask, tensors, manifest, whole=whole)

    def rewind(self) -> None:
        """Set weights and buffers back to `w^(k)`; masks and scores stay as they are."""
        self._check_attached()
        early = self._weights_to_rewind_to()
        with torch.no_grad():
            for place in self._places:
                gating.fill(place.tensor, early[place.name])
        self.life.rewind()

    def harden(self, evaluate: Evaluate | None = None) -> Mask:
        """Commit to the mask (see `commit`) and stop the search: the kept weights train on alone.

        Removed weights are exactly zero from here on, and optimisers need no change (but after
        `freeze_weights`, whose weights may train now, make a new one). DDP does: wrap the model
        again, because it expects gradients of all that had them when it was wrapped.
        """
        mask = self.commit(evaluate)
        self.life.harden()
        self._fix_gates()
        with torch.no_grad():
            for name, weight in self.weights.items():
                gate = self.gates[name]
                if self.life.rewound:  # what the search learned was for other weights than w^(k)
                    gate.unscale()
                else:
                    gate.fold(weight)
        return mask

    def give_mask(self, copy: nn.Module) -> nn.Module:
        """Give a copy of the model the binary mask as it is now, for `prunus.hard` and `strip`.

        For averages of weights (EMA): they average scores as well, and the mask of average scores
        has another density. The copy may be wrapped, as in `torch.optim.swa_utils.AveragedModel`.
        """
        self._check_attached()
        folded = self.life.moment in (Moment.BETWEEN_ROUNDS, Moment.HARDENED)
        gating.give_masks(self.model, copy, sizes=not (folded or self.life.rewound))
        return copy

    def try_mask(self, mask: Mapping[str, Tensor], evaluate: Evaluate | None) -> float:
        """For methods that choose among masks when they commit: how good the model is with one."""
        if evaluate is None:
            raise SettingError(
                f"{self.name} compares masks by their accuracy: give commit, end_round or harden "
                "an evaluate function that returns the model's accuracy on held-out data"
            )
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
        self._stop_following()
        return gating.strip(self.model)

    def remove(self) -> nn.Module:
        """Leave the model dense, with the weights as trained, and no trace of the method."""
        self._check_attached()
        self._stop_following()
        return gating.remove(self.model)

    def state_dict(self) -> dict[str, Any]:
        """The method's own state; the model's `state_dict` has the scores and weights."""
        return {
            "method": self.name,
            "settings": self.settings,
            "life": self.life.as_dict(),
            "round_mask": dict(self.mask()) if self.life.holds_mask else None,
            "rewind_weights": self._rewind_weights,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where `state_dict` was taken, in any order with the model's own."""
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
        self.life = LifeCycle.from_dict(state["life"])
        self._hold(state["round_mask"])
        self._rewind_weights = state["rewind_weights"]
        self._fix_gates()

    # Details

    def _select(self) -> None:
        """Select parameters; what is recorded of the rules is plain data."""
        if self.select == "auto":
            self.select = default_rule(self.model)
        self.selection = choose(self.model, self.select, self.exclude)
        if not isinstance(self.select, str) or not isinstance(self.exclude, str | None):
            self.select, self.exclude = [c.name for c in self.selection], None
        if self.select in ("paper", "body") and self.selection.share < _LITTLE:
            largest = sorted(self.selection.passed_over, key=lambda c: -c.parameter.numel())[:3]
            warn_caller(
                f"select={self.select!r} takes {self.selection.share:.1%} of all parameters of the "
                "model, and densities count no others. Left out are "
                f"{', '.join(c.name for c in largest)}: say in select what may be removed",
                SelectionWarning,
            )

    def _decide(self, evaluate: Evaluate | None) -> None:
        if lost := self._lost():
            warn_caller(lost, SearchWarning)
        self._hold(None)
        self._hold(mask := self.on_commit(evaluate))
        if not mask.kept:
            warn_caller(f"the mask removes every weight{self.why_empty}", SearchWarning)
        self.life.commit()

    def _final_mask(self) -> Mask:
        self._check_attached()
        if self.t:
            return self.commit()
        mask = self.mask()
        if not (self.life.holds_mask or self.decides_at_once):
            warn_caller(no_step(self.name, mask.density), SearchWarning)
        return mask

    def _fix_gates(self) -> None:
        """Let the gates (and the weights, if frozen) learn until the mask is final."""
        final = self.hardened
        if self.freeze_weights:
            (gating.unfreeze if final else gating.freeze)(self.model)
        for gate in self.gates.values():
            gate.hard = final
            for parameter in gate.parameters():
                parameter.requires_grad_(not final)
                parameter.grad = None  # without a gradient, no optimiser touches it

    def _weights_to_rewind_to(self) -> Mapping[str, Tensor]:
        if self._rewind_weights is None:
            why = f"step {self.rewind_step} of round 1 has not been reached"
            if self.rewind_step is None:
                why = "the method was made with rewind_step=None"
            raise AttachError(
                f"there are no weights w^(k) yet: {why}; ticket(weights='current') takes the "
                "weights as they are now"
            )
        return self._rewind_weights

    def _current_weights(self, mask: Mask) -> dict[str, Tensor]:
        tensors = self._snapshot()
        for name, gate in self.gates.items():
            weight = tensors[name]
            tensors[name] = masked(gate.effective(weight), mask[name].to(weight.device))
        return tensors
