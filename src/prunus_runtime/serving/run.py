"""Runs the app: in this process, or in several workers that share one port."""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from prunus_runtime import deployed
from prunus_runtime.leaving import GRACE, IDLE, TAKEN, let_nobody_in
from prunus_runtime.limits import Limits
from prunus_runtime.serving.app import Bounds, Service
from prunus_runtime.serving.metrics import FOLDER

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Http
except ImportError:  # the extra has it; without it, parsing takes more than twice the time
    from uvicorn.protocols.http.h11_impl import H11Protocol as Http  # type: ignore[assignment]

MAX_HEAD = 2**16
"""Bytes of the headers of a request; the parser itself has no bound."""
CONNECTIONS = 512
"""At a time, for each worker; the next gets a 503."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """What is served, and how."""

    model: Path
    name: str
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int | None = None
    limits: Limits | None = None
    bounds: Bounds = field(default_factory=Bounds)

    def load(self) -> deployed.Deployed:
        """The network; each worker has its share of the processors unless `threads` says else."""
        share = max(1, (os.cpu_count() or 1) // self.workers)
        return deployed.load(self.model, self.threads or share, limits=self.limits)


class Protocol(Http):
    """A connection. It ends if for long nothing is asked on it, or an answer is not taken, or if
    the headers of a request do not end."""

    _head = 0

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        inside = before is not None and before.more_body
        super().data_received(data)
        if inside or self.cycle is not before:
            self._head = 0
        else:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clock.cancel()
        super().connection_lost(exc)

    def _look(self, before: tuple[bool, object] | None) -> None:
        """Comes again and again, and knows what it saw before."""
        now = self.cycle is None or self.cycle.response_complete, self.cycle
        if now == before and now[0]:  # idle, and since the same answer
            self.transport.abort()
        else:
            self._clock = self.loop.call_later(self.timeout_keep_alive, self._look, now)


class Server(uvicorn.Server):
    """Ends in two steps when it is asked to: first callers are sent away, then it closes."""

    def __init__(self, service: Service) -> None:
        self.service = service
        seconds = math.ceil(service.bounds.seconds)
        super().__init__(
            uvicorn.Config(
                service,
                http=Protocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=CONNECTIONS,
                timeout_keep_alive=seconds,
                timeout_graceful_shutdown=seconds,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop, self._sockets = asyncio.get_running_loop(), sockets or []
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGTERM and self.started and not self.service.is_ending:
            self.service.is_ending = True
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._leave()))
        else:  # whoever asks twice is in a hurry
            super().handle_exit(sig, frame)

    async def _leave(self) -> None:
        """Ends without cutting anybody off: each caller's next answer closes its connection."""
        await asyncio.sleep(GRACE)
        for listening in self._sockets:
            let_nobody_in(listening)  # who is at the door already is taken
        await asyncio.sleep(TAKEN)
        for server in self.servers:
            server.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE):
                while self.server_state.connections:
                    await asyncio.sleep(TAKEN)
        self.should_exit = True


def serve(settings: Settings) -> None:
    """Serves until it is interrupted; a SIGTERM lets it answer what it was asked."""
    network = settings.load()  # here, where an error is a message
    with socket.create_server((settings.host, settings.port), backlog=1024) as listening:
        host, port = listening.getsockname()[:2]
        print(f"{network!r} at http://{host}:{port}", flush=True)
        if settings.workers == 1:
            return _work(settings, listening, network)
        with tempfile.TemporaryDirectory() as folder:
            os.environ[FOLDER] = folder
            return _supervise(settings, listening)


def _work(
    settings: Settings, listening: socket.socket, network: deployed.Deployed | None = None
) -> None:
    _log_to_stderr()
    service = Service(network or settings.load(), settings.name, settings.bounds)
    Server(service).run([listening])


def _supervise(settings: Settings, listening: socket.socket) -> None:
    """Keeps as many workers as there should be, until it is told to end."""
    _log_to_stderr()
    context = multiprocessing.get_context("spawn")
    workers: list[multiprocessing.process.BaseProcess] = []
    is_ending = False

    def end(sig: int, _: FrameType | None) -> None:
        nonlocal is_ending
        is_ending = True
        listening.close()
        for worker in workers:
            if worker.pid and worker.is_alive():
                os.kill(worker.pid, sig)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    while True:
        while len(workers) < settings.workers and not is_ending:
            workers.append(context.Process(target=_work, args=(settings, listening)))
            workers[-1].start()
        if not workers:
            return
        multiprocessing.connection.wait([worker.sentinel for worker in workers])
        for worker in [worker for worker in workers if not worker.is_alive()]:
            log.info("worker %s ended with status %s", worker.pid, worker.exitcode)
            mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
            workers.remove(worker)


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
