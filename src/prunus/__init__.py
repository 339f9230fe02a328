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
    ContinuousSparsification,
    DiscoveringNeuralWirings,
    IterativeMagnitudePruning,
    IterativeStochasticSparsification,
    L0Regularisation,
    LayerStatistics,
    Method,
    NetworkSlimming,
    SoftThresholdReparameterisation,
    Statistics,
)
from prunus.selection import Candidate, Selection, candidates, choose
from prunus.ticket import Manifest, Ticket
from prunus.version import __version__

__all__ = [
    "METHODS",
    "AttachError",
    "Candidate",
    "ContinuousSparsification",
    "DiscoveringNeuralWirings",
    "IterativeMagnitudePruning",
    "IterativeStochasticSparsification",
    "L0Regularisation",
    "LayerDensity",
    "LayerStatistics",
    "Manifest",
    "Mask",
    "MaskError",
    "Method",
    "NetworkSlimming",
    "PrunusError",
    "PrunusWarning",
    "Selection",
    "SelectionError",
    "SettingError",
    "SoftThresholdReparameterisation",
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
