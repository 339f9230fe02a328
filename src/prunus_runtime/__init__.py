"""Runs deployed networks. Needs numpy and nothing else: neither torch nor the model's code."""

from typing import TYPE_CHECKING, Any

from prunus_runtime.errors import FallbackWarning, GraphError, InputError, RuntimeFileError

if TYPE_CHECKING:
    from prunus_runtime.deployed import Deployed, load
    from prunus_runtime.graph import Graph, Operation
    from prunus_runtime.images import Images
    from prunus_runtime.limits import Limits

__all__ = [
    "Deployed",
    "FallbackWarning",
    "Graph",
    "GraphError",
    "Images",
    "InputError",
    "Limits",
    "Operation",
    "RuntimeFileError",
    "load",
]


def __getattr__(name: str) -> Any:
    """Imports the rest when it is used: `prunus` needs only `prunus_runtime.atomic`."""
    if name in __all__:
        from prunus_runtime import deployed, graph

        return getattr(deployed if hasattr(deployed, name) else graph, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
