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

if TYPE_CHECKING:
    from prunus.deployment import Deployed, deploy

__all__ = [
    "AMC",
    "METHODS",
    "AttachError",
    "Candidate",
    "ContinuedMagnitudePruning",
    "ContinuousSparsification",
    "DeployError",
    "Deployed",
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
    "deploy",
    "hard",
    "remove",
    "strip",
]


def __getattr__(name: str) -> Any:
    if name in ("deploy", "Deployed"):  # imported when used, because few programs do
        from prunus import deployment

        return getattr(deployment, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
