"""A small HTTP server for one deployed network, with nothing but the standard library.

`POST /predict` takes a batch as `.npy` or, with the content type `application/json`, as nested
lists, and answers in kind; or one image, `image/jpeg` or `image/png`, and answers with its classes
and their probabilities, as JSON. `GET /info` describes the network, `GET /health` says that it is
there. Errors are JSON: `{"error": "..."}`. Connections, bytes, computations and time are bounded,
so that no client takes them from the others. It has no encryption and no authentication: put it
behind a proxy that has.
"""

from __future__ import annotations

import json
import logging
import math
import os
import selectors
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RD, SHUT_RDWR
from typing import Any

from prunus_runtime import arrays
from prunus_runtime.deployed import Deployed
from prunus_runtime.errors import InputError
from prunus_runtime.leaving import GRACE, IDLE, TAKEN, let_nobody_in
from prunus_runtime.printing import printable

MAX_BODY = 2**26
"""Bytes of a request, and four times as many of an answer and of all requests at a time."""
JSON_COST = 32
"""How many times as much memory numbers take as JSON than as `.npy`."""
NPY, JSON, IMAGES = "application/x-npy", "application/json", ("image/jpeg", "image/png")
PATHS = "there are GET /health, GET /info and POST /predict"

log = logging.getLogger(__name__)


def info(deployed: Deployed) -> dict[str, Any]:
    """What `GET /info` answers."""
    measures = deployed.measures()
    return {
        "input_shape": deployed.input_shape,
        "output_shape": deployed.output_shape,
        "backend": deployed.backend,
        "weights": measures.weights,
        "kept_weights": measures.kept_weights,
        "multiply_adds": measures.macs,
        "kept_multiply_adds": measures.kept_macs,
        "images": deployed.graph.images and deployed.graph.images.described(),
    }


class Server(ThreadingHTTPServer):
    """Serves `deployed`. `serve_forever()` runs it; from another thread `leave()` ends that, and
    then `drain()` waits until everything that was asked is answered.

    At most `connections` are served at a time; the next wait. A request must arrive within
    `seconds`, and its answer must be taken within as many.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(
        self,
        deployed: Deployed,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        max_body: int = MAX_BODY,
        connections: int = 64,
        seconds: float = 30.0,
    ) -> None:
        if not 0 <= port <= 65535:
            raise InputError(f"port {port} does not exist: ports are from 0 to 65535")
        self.deployed, self.max_body, self.seconds = deployed, max_body, seconds
        self.handlers: set[Handler] = set()
        self.is_ending, self._patience, self._end = False, 0.0, math.inf
        self.computing = threading.BoundedSemaphore(os.cpu_count() or 1)
        self._slots = threading.BoundedSemaphore(connections)
        self._open: set[Any] = set()
        self._room, self._freed = 4 * max_body, threading.Condition()
        self.answer_bytes = 4 * math.prod(deployed.output_shape)
        self.info = info(deployed)
        super().__init__((host, port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Gives a connection a thread, as soon as one is free."""
        while not self._slots.acquire(timeout=0.1):
            self.service_actions()
            if self._end < time.monotonic():
                return self.shutdown_request(request)
        self._open.add(request)
        return super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._slots.release()

    def service_actions(self) -> None:
        """Hangs up on clients that take too long; called several times a second."""
        now = time.monotonic()
        for handler in tuple(self.handlers):
            if handler.deadline < now:
                handler.hang_up(SHUT_RDWR)
            elif self.is_ending and self._patience < now and not handler.is_busy:
                handler.hang_up(SHUT_RD)  # what it has sent already can still be read

    @contextmanager
    def room(self, size: int) -> Iterator[bool]:
        """Waits until `size` more bytes may be in use; whether that came in time."""
        with self._freed:
            found = self._freed.wait_for(lambda: self._room >= size, self.seconds)
            self._room -= size * found
        try:
            yield found
        finally:
            with self._freed:
                self._room += size * found
                self._freed.notify_all()

    def leave(self) -> None:
        """Ends `serve_forever()`. Until then everybody is still answered, and sent elsewhere: an
        answer ends its connection, so that nothing is asked on one that closes."""
        now = time.monotonic()
        self.is_ending, self._patience, self._end = True, now + GRACE + IDLE, now + self.seconds
        time.sleep(GRACE)
        self.shutdown()

    def drain(self) -> None:
        """Lets nobody in, and waits until all who are there are answered, at most `seconds`."""
        self.is_ending, self._end = True, min(self._end, time.monotonic() + self.seconds)
        let_nobody_in(self.socket)
        with selectors.DefaultSelector() as door:
            door.register(self.socket, selectors.EVENT_READ)
            while door.select(TAKEN) and time.monotonic() < self._end:
                self.handle_request()
        self.server_close()
        while self._open and time.monotonic() < self._end:
            self.service_actions()
            time.sleep(0.02)

    def handle_error(self, _: object, client_address: object) -> None:
        """Logs connections that broke; all other errors have been answered."""
        log.info("%s: %s", client_address, printable(repr(sys.exception())))


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    is_busy = False
    deadline = math.inf

    def setup(self) -> None:
        self.request.settimeout(self.server.seconds)  # of one read or write
        super().setup()
        self.server.handlers.add(self)

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self.server.handlers.discard(self)

    def handle_one_request(self) -> None:
        self.is_busy = False
        self._start_clock()
        super().handle_one_request()

    def parse_request(self) -> bool:
        self.is_busy = True
        if not super().parse_request():
            return False
        if len(set(self.headers.get_all("Content-Length", []))) > 1:
            self.send_error(400, "the request has several Content-Lengths")
            return False
        return True

    def hang_up(self, how: int) -> None:
        """Ends the connection from outside of its thread."""
        with suppress(OSError):
            self.connection.shutdown(how)

    def do_GET(self) -> None:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body that nobody reads
        if self.path == "/health":
            self._answer(200, {"status": "ok"})
        elif self.path == "/info":
            self._answer(200, self.server.info)
        elif self.path == "/predict":
            self.send_error(405, "use POST for /predict")
        else:
            self.send_error(404, PATHS)

    do_HEAD = do_GET  # noqa: N815 (that is what it must be called)

    def do_POST(self) -> None:
        if self.path in ("/health", "/info"):
            return self.send_error(405, f"use GET for {self.path}")
        if self.path != "/predict":
            return self.send_error(404, PATHS)
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            return self.send_error(411, "the request must say its Content-Length")
        cost = JSON_COST if self.headers.get_content_type() == JSON else 1
        most = 2 * self.server.max_body // cost if cost > 1 else self.server.max_body
        if len(length) > 12 or int(length) > most:
            return self.send_error(413, f"the request has more than {most} bytes")
        self.deadline = math.inf  # who waits for room is not late
        with self.server.room(cost * int(length)) as found:
            self._start_clock()
            if not found:
                return self.send_error(503, "the server has too much to do; try again later")
            return self._read(int(length))

    def _read(self, length: int) -> None:
        content = self.rfile.read(length)
        if len(content) < length:
            self.close_connection = True  # nobody is left to hear of an error
            return
        self.deadline = math.inf  # computing takes as long as it takes
        try:
            with self.server.computing:
                kind, result = self._predict(content)
        except InputError as error:
            self.send_error(400, str(error))
        except Exception:
            log.exception("a request failed")
            self.send_error(500, "the server failed; its log says why")
        else:
            self._send(200, kind, result)

    def _predict(self, content: bytes) -> tuple[str, bytes]:
        kind = self.headers.get_content_type()
        if kind in IMAGES:
            return JSON, json.dumps(self.server.deployed.classify([content])[0]).encode()
        is_json = kind == JSON
        x = arrays.from_json(content) if is_json else arrays.from_npy(content)
        most = 4 * self.server.max_body // (JSON_COST if is_json else 1)
        if x.ndim and len(x) * self.server.answer_bytes > most:
            raise InputError(f"the answer would have more than {most} bytes; send fewer images")
        y = self.server.deployed(x)
        return (JSON, arrays.to_json(y)) if is_json else (NPY, arrays.to_npy(y))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """As JSON. The connection ends, because the rest of the request may be unread."""
        self.close_connection = True
        self._answer(code, {"error": message or explain or self.responses[code][0]})

    def _answer(self, code: int, content: dict[str, Any]) -> None:
        self._send(code, JSON, json.dumps(content).encode())

    def _send(self, code: int, kind: str, content: bytes) -> None:
        self._start_clock()
        self.close_connection |= self.server.is_ending
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _start_clock(self) -> None:
        self.deadline = time.monotonic() + self.server.seconds

    def log_message(self, format: str, *arguments: object) -> None:
        log.info("%s", printable(format % arguments))

    def version_string(self) -> str:
        return "prunus"
