"""The ASGI app: one network behind the Open Inference Protocol, and behind the paths of `serve.py`.

| path | |
| --- | --- |
| `GET /v2`, `/v2/models/NAME` | metadata of the server and of the network |
| `GET /v2/health/live`, `/v2/health/ready`, `/v2/models/NAME/ready` | whether it is there |
| `POST /v2/models/NAME/infer` | outputs for inputs, as JSON or binary tensors |
| `GET /metrics` | for Prometheus |
| `GET /health`, `GET /info`, `POST /predict` | as `serve.py` has them |
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from prunus_runtime import arrays
from prunus_runtime.deployed import Deployed
from prunus_runtime.errors import InputError
from prunus_runtime.operation import Array
from prunus_runtime.printing import printable
from prunus_runtime.serve import IMAGES, JSON, JSON_COST, MAX_BODY, NPY, info
from prunus_runtime.serving import tensors
from prunus_runtime.serving.batching import Batcher, FullError
from prunus_runtime.serving.metrics import Metrics
from prunus_runtime.version import __version__

SMALL = 2**16
"""Bytes that are parsed at once; more would keep other callers waiting, and go to a thread."""
OCTETS = "application/octet-stream"
Result = TypeVar("Result")
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Scope = dict[str, Any]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bounds:
    """What callers may take: `max_body` bytes of a request and of an answer, four times as many of
    all at a time, and `seconds` to send or take them. The rest is as in `Batcher`."""

    max_body: int = MAX_BODY
    seconds: float = 30.0
    max_batch: int = 32
    max_delay: float = 0.0
    max_waiting: int = 256


class Request(NamedTuple):
    """What a caller asks, apart from the path."""

    headers: dict[bytes, bytes]
    receive: Receive

    def header(self, name: str) -> str | None:
        """A header, by its name in small letters."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")


class Answer(NamedTuple):
    """What a caller gets."""

    body: bytes
    kind: str = JSON
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class RefusedError(Exception):
    """A request that gets another status than 200, and why."""

    def __init__(self, status: int, why: str, *headers: tuple[str, str]) -> None:
        super().__init__(why)
        self.status, self.headers = status, headers


class Service:
    """An ASGI app that answers requests for one network.

    Once `is_ending`, it is not ready any more, and asks callers that it answers to go elsewhere.
    """

    def __init__(self, network: Deployed, name: str, bounds: Bounds | None = None) -> None:
        self.network, self.name, self.bounds = network, name, bounds or Bounds()
        self.is_ending = False
        self.metrics = Metrics()
        self._room = 4 * self.bounds.max_body
        self._classifying = asyncio.Semaphore(os.cpu_count() or 1)
        model = f"/v2/models/{name}"
        server = {"name": "prunus_runtime", "version": __version__}
        shapes = network.input_shape, network.output_shape
        self._posted = {f"{model}/infer": self._infer, "/predict": self._predict}
        self._got: dict[str, Callable[[], Answer]] = {
            "/v2": _constant({**server, "extensions": ["binary_tensor_data"]}),
            "/v2/health/live": _constant({"live": True}),
            "/v2/health/ready": self._ready,
            model: _constant(tensors.described(name, *shapes)),
            f"{model}/ready": self._ready,
            "/metrics": self._counted,
            "/health": _constant({"status": "ok"}),
            "/info": _constant(info(network)),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        began, path = time.perf_counter(), scope["path"]
        answer = await self._answer(scope["method"], path, Request(dict(scope["headers"]), receive))
        headers = [("content-type", answer.kind), ("content-length", str(len(answer.body)))]
        headers += answer.headers
        # After an error the rest of the request may be unread.
        if self.is_ending or answer.status >= 400:
            headers.append(("connection", "close"))
        encoded = [(name.encode(), value.encode()) for name, value in headers]
        start = {"type": "http.response.start", "status": answer.status, "headers": encoded}
        # Before it is sent: who has an answer may ask another worker how many there were.
        known = path if path in self._posted or path in self._got else "other"
        self.metrics.requests.labels(known, answer.status).inc()
        try:
            await send(start)
            await send({"type": "http.response.body", "body": answer.body})
        finally:
            self.metrics.seconds.observe(time.perf_counter() - began)

    async def _live(self, receive: Receive, send: Send) -> None:
        """From start to end, the batcher is at work."""
        await receive()
        async with Batcher(
            self.network,
            max_batch=self.bounds.max_batch,
            max_delay=self.bounds.max_delay,
            max_waiting=self.bounds.max_waiting,
            on_batch=self.metrics.images.observe,
        ) as self._batcher:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, method: str, path: str, request: Request) -> Answer:
        try:
            if method == "POST" and path in self._posted:
                return await self._posted[path](request)
            if method in ("GET", "HEAD") and path in self._got:
                return self._got[path]()
            if path in self._posted or path in self._got:
                raise RefusedError(405, f"{printable(path)} has another method")
            raise RefusedError(404, f"there is no {printable(path)}; the model is {self.name!r}")
        except RefusedError as error:
            return _json({"error": str(error)}, error.status, *error.headers)
        except InputError as error:
            return _json({"error": str(error)}, 400)
        except Exception:
            log.exception("a request failed")
            return _json({"error": "the server failed; its log says why"}, 500)

    def _ready(self) -> Answer:
        return _json({"ready": not self.is_ending}, 503 if self.is_ending else 200)

    def _counted(self) -> Answer:
        return Answer(self.metrics.text(), "text/plain; version=0.0.4")

    async def _infer(self, request: Request) -> Answer:
        head = request.header(tensors.HEADER_LENGTH.lower())
        with self._taken(request, _number(head) if head else None) as length:
            content = await self._body(request, length)
            asked = await _done(tensors.read_request, content, head, size=length)
            with self._room_for(self._answer_bytes(asked.x, as_json=not asked.wants_binary)):
                y = await self._computed(asked.x)
                body, json_length = await _done(
                    tensors.write_answer, y, self.name, asked, size=y.nbytes
                )
        if json_length is None:
            return Answer(body)
        return Answer(body, OCTETS, headers=((tensors.HEADER_LENGTH, str(json_length)),))

    async def _predict(self, request: Request) -> Answer:
        kind = (request.header("content-type") or "").partition(";")[0].strip().lower()
        is_json = kind == JSON
        with self._taken(request, None if is_json else 0) as length:
            content = await self._body(request, length)
            if kind in IMAGES:
                async with self._classifying:
                    (found,) = await asyncio.to_thread(self.network.classify, [content])
                return _json(found)
            read, write = (
                (arrays.from_json, arrays.to_json) if is_json else (arrays.from_npy, arrays.to_npy)
            )
            x = await _done(read, content, size=length)
            with self._room_for(self._answer_bytes(x, as_json=is_json)):
                y = await self._computed(x)
                body = await _done(write, y, size=y.nbytes)
        return Answer(body, JSON if is_json else NPY)

    async def _computed(self, x: np.ndarray) -> Array:
        try:
            with self.metrics.inside.track_inprogress():
                return await self._batcher(x)
        except FullError:
            raise _too_much() from None

    def _answer_bytes(self, x: np.ndarray, *, as_json: bool) -> int:
        """What the answer for `x` will take; `InputError` if that is too much."""
        if x.ndim == 0:
            raise InputError("the input is one number; its first dimension must be the batch")
        size = 4 * len(x) * math.prod(self.network.output_shape)
        most = self.bounds.max_body // (JSON_COST if as_json else 1)
        if size > most:
            raise InputError(f"the answer would have more than {most} bytes; send fewer images")
        return size * (JSON_COST if as_json else 1)

    @contextmanager
    def _taken(self, request: Request, json_length: int | None) -> Iterator[int]:
        """The length of a request that may be read, of which so many bytes are JSON (None: all)."""
        length = request.header("content-length")
        if length is None:
            raise RefusedError(411, "the request must say its Content-Length")
        size = _number(length)
        lists = size if json_length is None else min(json_length, size)
        most = 2 * self.bounds.max_body // JSON_COST
        if size > self.bounds.max_body or lists > most:
            raise RefusedError(
                413,
                f"the request has more than {self.bounds.max_body} bytes, or {most} of JSON",
            )
        with self._room_for(size + (JSON_COST - 1) * lists):
            yield size

    @contextmanager
    def _room_for(self, size: int) -> Iterator[None]:
        """Memory that is in use meanwhile; 503 if there is not enough."""
        if size > self._room:
            raise _too_much()
        self._room -= size
        try:
            yield
        finally:
            self._room += size

    async def _body(self, request: Request, length: int) -> bytes:
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self.bounds.seconds):
                while True:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":  # it is counted, though nobody hears
                        raise RefusedError(400, f"the request ended before its {length} bytes")
                    parts.append(message["body"])
                    if not message["more_body"]:
                        return b"".join(parts)
        except TimeoutError:
            raise RefusedError(408, "the request took too long to arrive") from None


async def _done(work: Callable[..., Result], *arguments: object, size: int) -> Result:
    """`work(*arguments)` about `size` bytes: at once, or in a thread."""
    if size <= SMALL:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise RefusedError(400, "a length in the headers is not a number")
    return int(text[:12])


def _too_much() -> RefusedError:
    return RefusedError(503, "the server has too much to do; try again later", ("retry-after", "1"))


def _json(content: object, status: int = 200, *headers: tuple[str, str]) -> Answer:
    body = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    return Answer(body, JSON, status, headers)


def _constant(content: object) -> Callable[[], Answer]:
    answer = _json(content)
    return lambda: answer
