"""The servers of the runtime, in a thread of the test or in a process of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from prunus_runtime.serve import Server
from support.processes import started

SECONDS = 60
"""That a caller waits for an answer: many times what it takes."""


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """The small server at work."""
    with server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(SECONDS)
            assert not thread.is_alive()


@contextmanager
def served(*command: object) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A command of the runtime that serves, as its process and its port."""
    with started("-m", *command, "--port", "0") as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline().rsplit(":", 1)[1])
