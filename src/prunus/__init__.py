"""Prunus finds the small network inside a big one."""

from typing import TYPE_CHECKING, Any

from prunus.errors import (
    AttachError,
    DeployError,
    MaskError,
    PrunusError,
    PrunusWarning,
    SelectionError,
    SettingError,
    TicketError,
)
from prunus.gates import hard, remove, strip
from prunus.lookup import trusting
from prunus.masks import LayerDensity, Mask
from prunus.methods import METHODS, LayerStatistics, Method, Statistics, find_method
from prunus.methods.builtin import *  # noqa: F403 (whatever is built in)
from prunus.selection import Candidate, Selection, candidates, choose
from prunus.tickets.ticket import Manifest, Ticket
from prunus.version import __version__

if TYPE_CHECKING:
    from prunus.deployment import Deployed, deploy

__all__ = [
    "METHODS",
    "AttachError",
    "Candidate",
    "DeployError",
    "Deployed",
    "LayerDensity",
    "LayerStatistics",
    "Manifest",
    "Mask",
    "MaskError",
    "Method",
    "PrunusError",
    "PrunusWarning",
    "Selection",
    "SelectionError",
    "SettingError",
    "Statistics",
    "Ticket",
    "TicketError",
    "__version__",
    "candidates",
    "choose",
    "deploy",
    "find_method",
    "hard",
    "remove",
    "strip",
    "trusting",
]
__all__ += [method.__name__ for method in METHODS.values()]


def __getattr__(name: str) -> Any:
    if name in ("deploy", "Deployed"):  # imported when used, because few programs do
        from prunus import deployment

        return getattr(deployment, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
