"""The sparsification methods, by the name that the command line and the results use."""

from prunus.methods.base import Evaluate, Method
from prunus.methods.cs import ContinuousSparsification
from prunus.methods.dnw import DiscoveringNeuralWirings
from prunus.methods.imp import IterativeMagnitudePruning
from prunus.methods.iss import IterativeStochasticSparsification
from prunus.methods.l0 import L0Regularisation
from prunus.methods.netslim import NetworkSlimming
from prunus.methods.soft_threshold import SoftThresholdReparameterisation
from prunus.methods.statistics import LayerStatistics, Statistics

METHODS: dict[str, type[Method]] = {
    ContinuousSparsification.name: ContinuousSparsification,
    IterativeMagnitudePruning.name: IterativeMagnitudePruning,
    IterativeStochasticSparsification.name: IterativeStochasticSparsification,
    NetworkSlimming.name: NetworkSlimming,
    L0Regularisation.name: L0Regularisation,
    SoftThresholdReparameterisation.name: SoftThresholdReparameterisation,
    DiscoveringNeuralWirings.name: DiscoveringNeuralWirings,
}

__all__ = [
    "METHODS",
    "ContinuousSparsification",
    "DiscoveringNeuralWirings",
    "Evaluate",
    "IterativeMagnitudePruning",
    "IterativeStochasticSparsification",
    "L0Regularisation",
    "LayerStatistics",
    "Method",
    "NetworkSlimming",
    "SoftThresholdReparameterisation",
    "Statistics",
]
