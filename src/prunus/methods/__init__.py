"""The sparsification methods, by the name that the command line and the results use."""

from prunus.methods.base import Evaluate, Method
from prunus.methods.cs import ContinuousSparsification
from prunus.methods.imp import IterativeMagnitudePruning
from prunus.methods.statistics import LayerStatistics, Statistics

METHODS: dict[str, type[Method]] = {
    ContinuousSparsification.name: ContinuousSparsification,
    IterativeMagnitudePruning.name: IterativeMagnitudePruning,
}

__all__ = [
    "METHODS",
    "ContinuousSparsification",
    "Evaluate",
    "IterativeMagnitudePruning",
    "LayerStatistics",
    "Method",
    "Statistics",
]
