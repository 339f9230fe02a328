"""Prunus finds the small network inside a big one."""

from prunus.errors import (
    AttachError,
    MaskError,
    PrunusError,
    PrunusWarning,
    SelectionError,
    SettingError,
    TicketError,
)
from prunus.gates import hard, remove, strip
from prunus.masks import LayerDensity, Mask
from prunus.methods import (
    AMC,
    METHODS,
    ContinuousSparsification,
    IterativeMagnitudePruning,
    LayerStatistics,
    Method,
    Statistics,
)
from prunus.selection import Candidate, Selection, candidates, choose
from prunus.ticket import Manifest, Ticket
from prunus.version import __version__

__all__ = [
    "AMC",
    "METHODS",
    "AttachError",
    "Candidate",
    "ContinuousSparsification",
    "IterativeMagnitudePruning",
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
    "hard",
    "remove",
    "strip",
]
