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
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class Service:
    """Answers requests for one network. `app` is the ASGI app. Once `is_ending`, it is not ready
    any more, and asks callers that it answers to go elsewhere."""

    def __init__(self, network: Deployed, name: str, bounds: Bounds | None = None) -> None:
        self.network, self.name, self.bounds = network, name, bounds or Bounds()
        self.is_ending = False
        self.metrics = Metrics()
        self._room = 4 * self.bounds.max_body
        self._classifying = asyncio.Semaphore(os.cpu_count() or 1)
        self._info = info(network)
        model = f"/v2/models/{name}"
        posted = {f"{model}/infer": self._infer, "/predict": self._predict}
        got = {
            "/v2": self._server,
            "/v2/health/live": self._live,
            "/v2/health/ready": self._ready,
            model: self._model,
            f"{model}/ready": self._ready,
            "/metrics": self._counted,
            "/health": self._health,
            "/info": self._described,
        }
        routes = [  # in the order in which they are tried
            *(Route(path, handler, methods=["POST"]) for path, handler in posted.items()),
            *(Route(path, handler, methods=["GET"]) for path, handler in got.items()),
        ]
        self._paths = {route.path for route in routes}
        inner = Starlette(
            routes=routes,
            lifespan=self._batching,
            exception_handlers={
                404: self._missing,
                HTTPException: _refused,
                InputError: _wrong,
                Exception: _failed,
            },
        )
        self.app: ASGIApp = self._observed(inner)

    @asynccontextmanager
    async def _batching(self, _: Starlette) -> AsyncIterator[None]:
        async with Batcher(
            self.network,
            max_batch=self.bounds.max_batch,
            max_delay=self.bounds.max_delay,
            max_waiting=self.bounds.max_waiting,
            on_batch=self.metrics.images.observe,
        ) as self._batcher:
            yield

    def _observed(self, app: ASGIApp) -> ASGIApp:
        """`app`, whose answers are counted, and end the connection where they should."""

        async def observed(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return await app(scope, receive, send)
            began, status = time.perf_counter(), 500

            async def answer(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    # After an error the rest of the request may be unread.
                    if self.is_ending or status >= 400:
                        message["headers"] = [*message["headers"], (b"connection", b"close")]
                await send(message)

            try:
                return await app(scope, receive, answer)
            finally:
                path = scope["path"] if scope["path"] in self._paths else "other"
                self.metrics.requests.labels(path, status).inc()
                self.metrics.seconds.observe(time.perf_counter() - began)

        return observed

    async def _missing(self, request: Request, _: Exception) -> Response:
        path = printable(request.url.path)
        return JSONResponse({"error": f"there is no {path}; the model is {self.name!r}"}, 404)

    async def _server(self, _: Request) -> Response:
        extensions = ["binary_tensor_data"]
        return JSONResponse(
            {"name": "prunus_runtime", "version": __version__, "extensions": extensions}
        )

    async def _live(self, _: Request) -> Response:
        return JSONResponse({"live": True})

    async def _ready(self, _: Request) -> Response:
        return JSONResponse({"ready": not self.is_ending}, 503 if self.is_ending else 200)

    async def _model(self, _: Request) -> Response:
        shapes = self.network.input_shape, self.network.output_shape
        return JSONResponse(tensors.described(self.name, *shapes))

    async def _counted(self, _: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _described(self, _: Request) -> Response:
        return JSONResponse(self._info)

    async def _infer(self, request: Request) -> Response:
        head = request.headers.get(tensors.HEADER_LENGTH)
        with self._taken(request, _number(head) if head else None) as length:
            content = await self._body(request, length)
            asked = await _done(tensors.read_request, content, head, size=length)
            with self._room_for(self._answer_bytes(asked.x, as_json=not asked.wants_binary)):
                y = await self._computed(asked.x)
                body, json_length = await _done(
                    tensors.write_answer, y, self.name, asked, size=y.nbytes
                )
        if json_length is None:
            return Response(body, media_type=JSON)
        return Response(body, 200, {tensors.HEADER_LENGTH: str(json_length)}, OCTETS)

    async def _predict(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = kind == JSON
        with self._taken(request, None if is_json else 0) as length:
            content = await self._body(request, length)
            if kind in IMAGES:
                async with self._classifying:
                    (found,) = await asyncio.to_thread(self.network.classify, [content])
                return JSONResponse(found)
            read, write = (
                (arrays.from_json, arrays.to_json) if is_json else (arrays.from_npy, arrays.to_npy)
            )
            x = await _done(read, content, size=length)
            with self._room_for(self._answer_bytes(x, as_json=is_json)):
                y = await self._computed(x)
                body = await _done(write, y, size=y.nbytes)
        return Response(body, media_type=JSON if is_json else NPY)

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
        length = request.headers.get("content-length")
        if length is None:
            raise HTTPException(411, "the request must say its Content-Length")
        size = _number(length)
        lists = size if json_length is None else min(json_length, size)
        most = 2 * self.bounds.max_body // JSON_COST
        if size > self.bounds.max_body or lists > most:
            raise HTTPException(
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
        try:
            async with asyncio.timeout(self.bounds.seconds):
                content = await request.body()
        except TimeoutError:
            raise HTTPException(408, "the request took too long to arrive") from None
        except ClientDisconnect:  # nobody is left to hear of it, but it is counted
            raise HTTPException(400, f"the request ended before its {length} bytes") from None
        return content


async def _done(work: Callable[..., Result], *arguments: object, size: int) -> Result:
    """`work(*arguments)` about `size` bytes: at once, or in a thread."""
    if size <= SMALL:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise HTTPException(400, "a length in the headers is not a number")
    return int(text[:12])


def _too_much() -> HTTPException:
    return HTTPException(
        503, "the server has too much to do; try again later", {"Retry-After": "1"}
    )


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _wrong(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)


async def _failed(_: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return JSONResponse({"error": "the server failed; its log says why"}, 500)
