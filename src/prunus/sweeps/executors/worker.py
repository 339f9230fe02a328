"""A worker process of `LocalExecutor`: our end, and what runs in it."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_SECONDS_ALONE = 60.0
"""For a run to write its checkpoint after the sweep is gone."""


class WorkerProcess:
    """A worker process, and the pipe to it. When either end is gone, the other notices."""

    def __init__(self, environment: dict[str, str], log: Path | None) -> None:
        spawn = get_context("spawn")  # a process that has used torch's threads cannot fork
        self._pipe, theirs = spawn.Pipe()
        # A second one that nothing is sent through: its end tells a busy worker that we are gone.
        lifeline, self._life = spawn.Pipe(duplex=False)
        self._process = spawn.Process(
            target=serve,
            args=(theirs, lifeline, environment, None if log is None else str(log)),
        )
        self._process.start()
        theirs.close()
        lifeline.close()

    def call(self, content: bytes) -> tuple[bool, Any]:
        """Whether the call succeeded, and its result or error. EOFError: the process died."""
        self._pipe.send_bytes(content)
        answer: tuple[bool, Any] = self._pipe.recv()
        return answer

    def ask_to_stop(self) -> None:
        with suppress(ProcessLookupError, ValueError):
            if self._process.pid is not None:
                os.kill(self._process.pid, signal.SIGTERM)

    def end(self, *, dying: bool = False) -> int | None:
        """Kill it, because it has no work that could be lost. Returns its exit code.

        `dying`: it is ending by itself, so wait for its own exit code first.
        """
        if dying:
            self._process.join(1)
        self._process.kill()
        self._process.join()
        self._pipe.close()
        self._life.close()
        return self._process.exitcode


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
