"""Taking a ticket to another task."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from prunus.errors import TicketError
from prunus.gates import check_attachable, plain_tensors
from prunus.masks import Mask
from prunus.tickets.ticket import Ticket


@dataclass(frozen=True)
class Transfer:
    """What came along, by tensor name, and what did not."""

    transferred: tuple[str, ...]
    new: dict[str, str]
    """Tensors of the model that keep their random values, and why."""


def transfer(ticket: Ticket, model: nn.Module) -> Transfer:
    """Give `model`, in place, the weights and masks of all layers that it shares with the ticket.

    A tensor is shared if name and shape are the same. The classifier (the last layer with a weight)
    always stays new, because its outputs mean something else now.
    """
    check_attachable(model)
    tensors = plain_tensors(model)
    classifier = _classifier(model)
    new: dict[str, str] = {}
    for name, tensor in tensors.items():
        if name.rpartition(".")[0] == classifier:
            new[name] = "classifier"
        elif name not in ticket.weights:
            new[name] = "not in the ticket"
        elif ticket.weights[name].shape != tensor.shape:
            theirs, ours = tuple(ticket.weights[name].shape), tuple(tensor.shape)
            new[name] = f"{theirs} in the ticket but {ours} here"
    shared = tuple(name for name in tensors if name not in new)
    masks = {name: ticket.mask[name] for name in ticket.mask if name in shared}
    if not masks and (ticket.mask or not shared):
        raise TicketError(
            "nothing of this ticket can be transferred: no layer that it masks has the same name "
            "and shape in the model; use the network that the ticket was found in"
        )
    with torch.no_grad():
        for name in shared:
            tensors[name].copy_(ticket.weights[name])
    Mask(masks).apply(model)
    return Transfer(shared, new)


def _classifier(model: nn.Module) -> str:
    """The path of the last layer whose parameters are more than vectors."""
    layers = [
        path
        for path, module in model.named_modules()
        if any(p.dim() > 1 for p in module.parameters(recurse=False))
    ]
    return layers[-1] if layers else ""
