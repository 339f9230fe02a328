"""Runs deployed networks. Needs numpy and nothing else: neither torch nor the model's code."""

from prunus_runtime.deployed import Deployed, load
from prunus_runtime.errors import FallbackWarning, GraphError, InputError, RuntimeFileError
from prunus_runtime.graph import Graph, Operation

__all__ = [
    "Deployed",
    "FallbackWarning",
    "Graph",
    "GraphError",
    "InputError",
    "Operation",
    "RuntimeFileError",
    "load",
]
