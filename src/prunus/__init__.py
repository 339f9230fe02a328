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
    ContinuedMagnitudePruning,
    ContinuousSparsification,
    DiscoveringNeuralWirings,
    GradualMagnitudePruning,
    IterativeMagnitudePruning,
    IterativeStochasticSparsification,
    L0Regularisation,
    LayerStatistics,
    MagnitudePruning,
    Method,
    NetworkSlimming,
    RandomPruning,
    SequentialSparsification,
    SoftThresholdReparameterisation,
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
    "ContinuedMagnitudePruning",
    "ContinuousSparsification",
    "DiscoveringNeuralWirings",
    "GradualMagnitudePruning",
    "IterativeMagnitudePruning",
    "IterativeStochasticSparsification",
    "L0Regularisation",
    "LayerDensity",
    "LayerStatistics",
    "MagnitudePruning",
    "Manifest",
    "Mask",
    "MaskError",
    "Method",
    "NetworkSlimming",
    "PrunusError",
    "PrunusWarning",
    "RandomPruning",
    "Selection",
    "SelectionError",
    "SequentialSparsification",
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
