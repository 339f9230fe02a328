"""The sparsification methods, by the name that the command line and the results use."""

from prunus.methods.amc import AMC
from prunus.methods.base import Evaluate, Method
from prunus.methods.cs import ContinuousSparsification
from prunus.methods.imp import IterativeMagnitudePruning
from prunus.methods.statistics import LayerStatistics, Statistics

METHODS: dict[str, type[Method]] = {
    ContinuousSparsification.name: ContinuousSparsification,
    IterativeMagnitudePruning.name: IterativeMagnitudePruning,
    AMC.name: AMC,
}

__all__ = [
    "AMC",
    "METHODS",
    "ContinuousSparsification",
    "Evaluate",
    "IterativeMagnitudePruning",
    "LayerStatistics",
    "Method",
    "Statistics",
]
