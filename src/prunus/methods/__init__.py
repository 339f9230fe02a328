"""The sparsification methods, by the name that the command line and the results use."""

from prunus.methods.amc import AMC
from prunus.methods.base import Evaluate, Method
from prunus.methods.cs import ContinuousSparsification
from prunus.methods.dnw import DiscoveringNeuralWirings
from prunus.methods.gmp import GradualMagnitudePruning
from prunus.methods.imp import ContinuedMagnitudePruning, IterativeMagnitudePruning
from prunus.methods.iss import IterativeStochasticSparsification
from prunus.methods.l0 import L0Regularisation
from prunus.methods.mp import MagnitudePruning
from prunus.methods.netslim import NetworkSlimming
from prunus.methods.random import RandomPruning
from prunus.methods.seq_cs import SequentialSparsification
from prunus.methods.soft_threshold import SoftThresholdReparameterisation
from prunus.methods.statistics import LayerStatistics, Statistics

METHODS: dict[str, type[Method]] = {
    ContinuousSparsification.name: ContinuousSparsification,
    IterativeMagnitudePruning.name: IterativeMagnitudePruning,
    ContinuedMagnitudePruning.name: ContinuedMagnitudePruning,
    SequentialSparsification.name: SequentialSparsification,
    MagnitudePruning.name: MagnitudePruning,
    GradualMagnitudePruning.name: GradualMagnitudePruning,
    RandomPruning.name: RandomPruning,
    IterativeStochasticSparsification.name: IterativeStochasticSparsification,
    NetworkSlimming.name: NetworkSlimming,
    L0Regularisation.name: L0Regularisation,
    SoftThresholdReparameterisation.name: SoftThresholdReparameterisation,
    DiscoveringNeuralWirings.name: DiscoveringNeuralWirings,
    AMC.name: AMC,
}

__all__ = [
    "AMC",
    "METHODS",
    "ContinuedMagnitudePruning",
    "ContinuousSparsification",
    "DiscoveringNeuralWirings",
    "Evaluate",
    "GradualMagnitudePruning",
    "IterativeMagnitudePruning",
    "IterativeStochasticSparsification",
    "L0Regularisation",
    "LayerStatistics",
    "MagnitudePruning",
    "Method",
    "NetworkSlimming",
    "RandomPruning",
    "SequentialSparsification",
    "SoftThresholdReparameterisation",
    "Statistics",
]
