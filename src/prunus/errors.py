"""What Prunus raises. Every message names what is wrong, the value, and what to do about it."""

import errno
import shlex
import sys
from pathlib import Path
from warnings import warn


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


class SelectionWarning(PrunusWarning):
    """A selection, not spelt out, that leaves much of the network as it is."""


class SearchWarning(PrunusWarning):
    """A search that ended in a way that speaks of wrong use: too few steps, scores at rest, ..."""


def warn_caller(message: str, category: type[PrunusWarning] = PrunusWarning) -> None:
    """Warn of the line outside of Prunus that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("prunus."):
        frame, level = frame.f_back, level + 1
    warn(message, category, stacklevel=level)


def how_to_install(extra: str) -> str:
    """The command that installs one of Prunus' extras: for a clone, or from a package index."""
    clone = Path(__file__).parents[2]
    if (clone / "pyproject.toml").exists():
        return f"pip install -e {shlex.quote(f'{clone}[{extra}]')}"
    return f"pip install 'prunus[{extra}]'"


def first_line(error: BaseException) -> str:
    """What others' errors say before they go into detail."""
    return str(error).strip().partition("\n")[0]


def in_words(error: OSError) -> str:
    """What the operating system refused: which file, why, what is safe, and what to do."""
    file = f" {error.filename}" if error.filename is not None else ""
    why = error.strerror or str(error)
    if isinstance(error, BrokenPipeError):
        return (
            f"what read our output is gone (such as | head). {_SAFE}, and the same command goes on"
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk is full{file and f' at{file}'}. {_SAFE}: make room, and run the same command"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"not allowed to use{file} ({why}). {_SAFE}: allow it, or choose another folder"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"something is in the way at{file} ({why}): a file, or a link that leads nowhere"
    return f"{why}:{file}. {_SAFE}" if file else f"{why}. {_SAFE}"


_SAFE = "What was written before is whole"
