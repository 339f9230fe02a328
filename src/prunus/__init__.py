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
    METHODS,
    ContinuedMagnitudePruning,
    ContinuousSparsification,
    GradualMagnitudePruning,
    IterativeMagnitudePruning,
    LayerStatistics,
    MagnitudePruning,
    Method,
    RandomPruning,
    SequentialSparsification,
    Statistics,
)
from prunus.selection import Candidate, Selection, candidates, choose
from prunus.ticket import Manifest, Ticket
from prunus.version import __version__

__all__ = [
    "METHODS",
    "AttachError",
    "Candidate",
    "ContinuedMagnitudePruning",
    "ContinuousSparsification",
    "GradualMagnitudePruning",
    "IterativeMagnitudePruning",
    "LayerDensity",
    "LayerStatistics",
    "MagnitudePruning",
    "Manifest",
    "Mask",
    "MaskError",
    "Method",
    "PrunusError",
    "PrunusWarning",
    "RandomPruning",
    "Selection",
    "SelectionError",
    "SequentialSparsification",
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
