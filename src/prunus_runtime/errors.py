"""What the runtime raises. Every message names what is wrong, its value, and the remedy."""


class GraphError(ValueError):
    """A graph that does not fit together, or that the runtime cannot run."""


class RuntimeFileError(ValueError):
    """A file of a deployed network that cannot be read or written."""


class InputError(ValueError):
    """An input that does not fit the network."""


class FallbackWarning(UserWarning):
    """The network runs, but far more slowly than it could."""
