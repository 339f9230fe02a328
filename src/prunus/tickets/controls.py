"""Controls: what a ticket's mask and weights are worth, seen by replacing one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from torch import nn

from prunus.errors import TicketError
from prunus.gates import plain_tensors
from prunus.tickets.ticket import Ticket

Control = Literal["reinit", "shuffled", "random", "magnitude"]

OF_WHOLE_TICKETS = frozenset({"shuffled", "random", "magnitude"})
"""Controls with another mask than the ticket's: they need the weights that it removes."""


def control_of(ticket: Ticket, control: Control, *, seed: int, fresh: nn.Module) -> Ticket:
    """A ticket to compare `ticket` with.

    - `"reinit"`: its mask, with the weights of `fresh`, a newly initialised network.
    - `"shuffled"`: its weights `w^(k)`, under a random mask of the same density in every layer.
    - `"random"`: its weights `w^(k)`, under a random mask of the same density in all.
    - `"magnitude"`: its weights `w^(k)`, under the mask of the largest of them in every layer, of
      the same density in every layer.

    Random masks are drawn from `seed`. These masks keep weights that the ticket's own removes, so
    the ticket has to be `whole`.
    """
    if not ticket.mask:
        raise TicketError("this ticket has no mask, so it has no controls: it is a dense network")
    if control == "reinit":
        new = {
            name: tensor
            for name, tensor in plain_tensors(fresh).items()
            if name in ticket.weights and tensor.shape == ticket.weights[name].shape
        }
        manifest = replace(ticket.manifest, rewind_point=0)
        return Ticket(ticket.mask, {**ticket.weights, **new}, manifest, whole=ticket.whole)
    if not ticket.whole:
        raise TicketError(
            f"control {control!r} puts another mask on the weights w^(k), but this ticket has only "
            "those that its own mask keeps; make whole tickets with prunus search --whole-tickets, "
            "prunus prune --set whole_tickets=true or method.ticket(whole=True)"
        )
    masks = {
        "shuffled": lambda: ticket.mask.shuffled(seed),
        "random": lambda: ticket.mask.random(seed),
        "magnitude": lambda: ticket.mask.largest(ticket.weights),
    }
    return Ticket(masks[control](), ticket.weights, ticket.manifest, whole=True)
