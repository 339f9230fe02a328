# That of its runtime: both are published together.
from prunus_runtime.version import __version__

__all__ = ["__version__"]
