"""What runs in a worker process of `LocalExecutor`."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

_SECONDS_ALONE = 60.0
"""For a run to write its checkpoint after the sweep is gone."""


def serve(
    pipe: Connection,
    lifeline: Connection,
    environment: dict[str, str],
    log: str | None,
) -> None:
    """Answer calls until the pipe ends. A run in the main thread hears signals."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the sweep, which tells us
    os.environ.update(environment)  # early enough for CUDA, and for the processes that we start
    if log is not None:
        _print_to(Path(log))
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
    with suppress(EOFError, OSError):  # nobody is left to work for
        while True:
            pipe.send_bytes(_answer(pipe.recv_bytes()))


def _answer(call: bytes) -> bytes:
    """Whether the call succeeded, and its result or error, pickled."""
    try:
        function, args, kwargs = pickle.loads(call)
        return pickle.dumps((True, function(*args, **kwargs)))
    except Exception as error:
        return pickle.dumps((False, _portable(error)))


def _portable(error: Exception) -> Exception:
    """The error itself, or words about it if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _watch(lifeline: Connection) -> None:
    """When the sweep is gone, stop the run as if told to: with a checkpoint."""
    with suppress(EOFError, OSError):
        lifeline.recv()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_SECONDS_ALONE)
    os._exit(1)


def _print_to(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
