"""Tickets: a mask with the weights it re-trains from, its file, its controls, and its transfer."""

from prunus.tickets.controls import Control, control_of
from prunus.tickets.ticket import Manifest, Ticket
from prunus.tickets.transfer import Transfer, transfer

__all__ = ["Control", "Manifest", "Ticket", "Transfer", "control_of", "transfer"]
