"""A method in a training loop that somebody else wrote: what all callbacks share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from prunus.errors import AttachError
from prunus.gates import is_sharded
from prunus.methods import Method
from prunus.methods.settings import check
from prunus.tickets.ticket import Ticket

_UNKNOWN = 10**9
"""Steps, until training begins and the trainer knows how many there are."""


class Guest:
    """Attaches a method or takes an attached one; then a callback tells it what happens."""

    def __init__(self, method: Method | type[Method], settings: Mapping[str, Any]) -> None:
        given = ", ".join(settings)
        check(
            not (isinstance(method, Method) and settings),
            f"{given}: the method is attached already; give it its settings there",
        )
        self.method = method if isinstance(method, Method) else None
        self._class = method if isinstance(method, type) else type(method)
        # A trainer goes on with the trained weights, so no copy of w^(k) is kept unless asked for.
        self._settings = {"rewind_step": None, **settings} if isinstance(method, type) else {}
        self._ended = False

    @property
    def present(self) -> Method:
        """The method, while it is on the model."""
        self._check_not_ended()
        if self.method is None:
            raise AttachError("the model is not sparsified: the callback has not attached anything")
        return self.method

    def attach(self, model: nn.Module) -> None:
        """Put gates on the model, before it is loaded, wrapped, or given to an optimiser."""
        self._check_not_ended()
        if self.method is None:
            self.method = self._class(model, **{"steps": _UNKNOWN, **self._settings})

    def begin(
        self,
        model: nn.Module,
        steps: int | float,
        optimizer: Optimizer,
        saved: Mapping[str, Any] | None = None,
    ) -> None:
        """Training begins, or goes on from `saved`, the state of the method at a checkpoint."""
        method = self.present
        check(
            any(module is method.model for module in model.modules()),
            "the model that is trained is not the one that was sparsified: was it made again "
            "(model_init)? Give the trainer the model itself",
        )
        check(
            isinstance(steps, int) and steps > 0,
            f"steps={steps}: the trainer does not know how many it makes; set its max_steps",
        )
        if self._settings and "steps" not in self._settings:
            set_steps(method, int(steps))
        check(
            method.hardened or method.steps <= steps,
            f"steps={method.steps} are more than the {steps} steps of this training, at whose end "
            "the search would be unfinished: give fewer, or train longer",
        )
        if saved is not None:
            method.load_state_dict(saved)
        _check_groups(method, optimizer)
        method.hard_in_eval = method.t > 0  # before the first step there is no mask to evaluate
        method.follow(optimizer)

    def before_batch(self) -> None:
        """What follows is training, even if the model's own mode is that of evaluation.

        Pretrained models come in that mode, frozen parts stay in it, and Lightning keeps it.
        """
        for gate in self.present.gates.values():
            gate.train()

    def before_step(self) -> None:
        """All gradients of a step are there, and the optimiser has not used them."""
        method = self.present
        method.regularize()
        method.withhold()
        method.hard_in_eval = True

    def metrics(self) -> dict[str, float]:
        """What to log."""
        now = self.present.stats()
        names = ("in_transition", "in_transition_per_kept")
        return {"density": now.hard_density, **{name: getattr(now, name) for name in names}}

    def end(self) -> tuple[Ticket, bool]:
        """Fix the mask and leave: the ticket, and whether the model is plain again, with zeros.

        A model that processes share out (`fully_shard`) is not: it keeps its gates, mask and all.
        """
        method = self.present
        ticket = method.ticket("current" if method.rewind_step is None else "rewind")
        is_plain = not _is_shared_out(method)
        if is_plain:
            method.strip()
        else:
            method.harden()
        self.method, self._ended = None, True
        return ticket, is_plain

    def _check_not_ended(self) -> None:
        if self._ended:
            raise AttachError(
                "the search of this callback has ended with the training that it was for: to train "
                "again, make a trainer without it, or with a new one to sparsify further"
            )


def set_steps(method: Method, steps: int) -> None:
    """Set `T` of a method that has made no step yet, and derive anew what follows from it."""
    k = method.rewind_step or 0
    check(k <= steps, f"rewind_step={k} is not among the {steps} steps of this training")
    method.steps = steps
    method.prepare()
    method.load_state_dict(method.state_dict())  # what RigL's gates are told as they attach


def _check_groups(method: Method, optimizer: Optimizer) -> None:
    """Raise unless what the optimiser learns of the gates is in parameter groups of its own."""
    own = {id(p) for gate in method.gates.values() for p in gate.parameters()}
    handed = {id(p) for group in method.param_groups(lr=1.0) for p in group["params"]} & own
    held = [{id(p) for p in group["params"]} for group in optimizer.param_groups]
    check(
        handed == set().union(*(group for group in held if group <= handed)),
        f"{method.name} needs an optimiser that has its scores in a group of their own: attach the "
        "method first, make the optimiser from its param_groups(), and give the trainer both (cs "
        "with a target_density needs none)",
    )
    idle = (own - handed) & set().union(*held)
    check(
        not (idle and _is_shared_out(method)),
        f"the optimiser holds scores of {method.name}, which it does not move, and under "
        "fully_shard a checkpoint without their state cannot be loaded: give it the parameters "
        "whose names do not end in '.score'",
    )


def _is_shared_out(method: Method) -> bool:
    """Whether processes have a part of the weights each (`fully_shard`)."""
    return any(is_sharded(weight) for weight in method.weights.values())
