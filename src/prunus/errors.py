"""What Prunus raises. Every message names what is wrong, the value, and what to do about it."""


class PrunusError(Exception):
    """Base of every error that Prunus raises on purpose."""


class SettingError(PrunusError, ValueError):
    """An argument or setting has a value that cannot work."""


class SelectionError(PrunusError, ValueError):
    """A selection of parameters that is empty, ambiguous or impossible."""


class AttachError(PrunusError, RuntimeError):
    """The model is in a state that the call cannot work with (for example already sparsified)."""


class MaskError(PrunusError, ValueError):
    """Masks that do not fit each other or the model."""


class TicketError(PrunusError, ValueError):
    """A ticket file that cannot be read, or a ticket that does not fit the model."""


class DeployError(PrunusError, RuntimeError):
    """A network that cannot be captured or deployed, or a deployed one that cannot be read."""


class PrunusWarning(UserWarning):
    """Something that works but is very probably not what was wanted."""


class SearchWarning(PrunusWarning):
    """A search that ended in a way that speaks of wrong use: too few steps, scores at rest, ..."""
