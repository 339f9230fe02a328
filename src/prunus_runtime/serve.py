"""A small HTTP server for one deployed network, with nothing but the standard library.

`POST /predict` takes a batch as `.npy` or, with the content type `application/json`, as nested
lists, and answers in kind. `GET /info` describes the network, `GET /health` says that it is there.
Errors are JSON: `{"error": "..."}`. It has no encryption and no authentication: put it behind a
proxy that has.
"""

from __future__ import annotations

import json
import logging
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prunus_runtime import arrays
from prunus_runtime.deployed import Deployed
from prunus_runtime.errors import InputError

MAX_BODY = 2**26
"""Bytes of a request."""
NPY, JSON = "application/x-npy", "application/json"

log = logging.getLogger(__name__)


class Server(ThreadingHTTPServer):
    """Serves `deployed`; `serve_forever()` runs it, `shutdown()` from another thread ends it."""

    daemon_threads = True

    def __init__(
        self,
        deployed: Deployed,
        host: str = "127.0.0.1",
        port: int = 8000,
        max_body: int = MAX_BODY,
    ) -> None:
        self.deployed = deployed
        self.max_body = max_body
        measures = deployed.measures()
        self.info = {
            "input_shape": deployed.input_shape,
            "output_shape": deployed.output_shape,
            "backend": deployed.backend,
            "weights": measures.weights,
            "kept_weights": measures.kept_weights,
            "multiply_adds": measures.macs,
            "kept_multiply_adds": measures.kept_macs,
        }
        super().__init__((host, port), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs connections that broke; all other errors have been answered."""
        log.info("%s: %s: %r", client_address, request, sys.exception())


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds without a byte, after which a connection is given up

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(200, {"status": "ok"})
        elif self.path == "/info":
            self._answer(200, self.server.info)
        elif self.path == "/predict":
            self.send_error(405, "use POST for /predict")
        else:
            self.send_error(404, "there are GET /health, GET /info and POST /predict")

    def do_POST(self) -> None:
        if self.path in ("/health", "/info"):
            return self.send_error(405, f"use GET for {self.path}")
        if self.path != "/predict":
            return self.send_error(404, "there are GET /health, GET /info and POST /predict")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            return self.send_error(411, "the request must say its Content-Length")
        if len(length) > 12 or int(length) > self.server.max_body:
            return self.send_error(413, f"the request has more than {self.server.max_body} bytes")
        content = self.rfile.read(int(length))
        if len(content) < int(length):
            self.close_connection = True  # nobody is left to hear of an error
            return None
        try:
            return self._predict(content)
        except InputError as error:
            return self.send_error(400, str(error))
        except Exception:
            log.exception("a request failed")
            return self.send_error(500, "the server failed; its log says why")

    def _predict(self, content: bytes) -> None:
        kind = self.headers.get_content_type()
        if kind == JSON:
            result = arrays.to_json(self.server.deployed(arrays.from_json(content)))
        else:
            kind = NPY
            result = arrays.to_npy(self.server.deployed(arrays.from_npy(content)))
        self._send(200, kind, result)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """As JSON. The connection ends, because the rest of the request may be unread."""
        self.close_connection = True
        self._answer(code, {"error": message or explain or self.responses[code][0]})

    def _answer(self, code: int, content: dict[str, Any]) -> None:
        self._send(code, JSON, json.dumps(content).encode())

    def _send(self, code: int, kind: str, content: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        log.info(format, *arguments)

    def version_string(self) -> str:
        return "prunus"
