"""The sparsification methods, by the name that the command line and the results use."""

from prunus.methods.base import Evaluate, Method
from prunus.methods.cs import ContinuousSparsification
from prunus.methods.gmp import GradualMagnitudePruning
from prunus.methods.imp import ContinuedMagnitudePruning, IterativeMagnitudePruning
from prunus.methods.mp import MagnitudePruning
from prunus.methods.random import RandomPruning
from prunus.methods.seq_cs import SequentialSparsification
from prunus.methods.statistics import LayerStatistics, Statistics

METHODS: dict[str, type[Method]] = {
    ContinuousSparsification.name: ContinuousSparsification,
    IterativeMagnitudePruning.name: IterativeMagnitudePruning,
    ContinuedMagnitudePruning.name: ContinuedMagnitudePruning,
    SequentialSparsification.name: SequentialSparsification,
    MagnitudePruning.name: MagnitudePruning,
    GradualMagnitudePruning.name: GradualMagnitudePruning,
    RandomPruning.name: RandomPruning,
}

__all__ = [
    "METHODS",
    "ContinuedMagnitudePruning",
    "ContinuousSparsification",
    "Evaluate",
    "GradualMagnitudePruning",
    "IterativeMagnitudePruning",
    "LayerStatistics",
    "MagnitudePruning",
    "Method",
    "RandomPruning",
    "SequentialSparsification",
    "Statistics",
]
