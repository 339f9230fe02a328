"""The servers of the runtime, in a thread of the test or in a process of their own."""

from __future__ import annotations

import http.client
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Barrier, Thread

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


def lost_on_sigterm(
    process: subprocess.Popen[str], port: int, body: bytes, clients: int = 4
) -> list[Exception]:
    """What befalls clients that ask all the time, on the same connections or on new ones until they
    are refused, while the server is told to end: whatever was asked and not answered."""
    lost, answered = list[Exception](), Barrier(clients + 1)

    def client() -> None:
        first = True
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
            try:
                connection.connect()
            except OSError:
                return  # nothing was asked
            while connection.sock:
                try:
                    connection.request("POST", "/predict", body)
                    assert connection.getresponse().read()
                except (OSError, http.client.HTTPException) as trouble:
                    lost.append(trouble)
                    return
                if first:
                    first = False
                    answered.wait(SECONDS)

    threads = [Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    answered.wait(SECONDS)
    process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(SECONDS)
    return lost
