"""Prunus finds the small network inside a big one."""

from importlib import import_module
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
from prunus.methods.builtin import CLASSES
from prunus.selection import Candidate, Selection, candidates, choose
from prunus.tickets.ticket import Manifest, Ticket
from prunus.version import __version__

if TYPE_CHECKING:
    from prunus.deployment import Deployed, deploy
    from prunus.methods.builtin import *  # noqa: F403 (whatever is built in)

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
__all__ += [cls for _, cls in CLASSES.values()]

_LATER = {"Deployed": "prunus.deployment", "deploy": "prunus.deployment"}
_LATER |= {cls: module for module, cls in CLASSES.values()}
"""The modules of names that are imported when they are used, because few programs use them all."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
