"""Many callers, one network: inputs that arrive while it computes go through it together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from prunus_runtime.operation import Array


class FullError(Exception):
    """So much is waiting that a new input would wait for too long."""


class _Call(NamedTuple):
    """An input that waits, and where its output goes."""

    x: np.ndarray
    output: asyncio.Future[Array]

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for inputs that can be computed together."""
        return self.x.dtype, self.x.shape[1:]


class Batcher:
    """`await batcher(x)` is `run(x)`, for many callers. Begin with `async with`.

    One batch is computed at a time, of at most `max_batch` images unless a single input has more.
    Nothing waits while nothing is computed, unless `max_delay` says for how many seconds the first
    input of a batch may wait for others. At most `max_waiting` inputs wait; the next is a
    `FullError`. `on_batch` is told the number of images of every batch.
    """

    def __init__(
        self,
        run: Callable[[np.ndarray], Array],
        *,
        max_batch: int = 32,
        max_delay: float = 0.0,
        max_waiting: int = 256,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._run, self._on_batch = run, on_batch
        self.max_batch, self.max_delay, self.max_waiting = max_batch, max_delay, max_waiting
        self._waiting: deque[_Call] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "network")

    @property
    def waiting(self) -> int:
        """How many inputs wait."""
        return len(self._waiting)

    async def __aenter__(self) -> Batcher:
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._worker.cancel()
        with suppress(asyncio.CancelledError):
            await self._worker
        self._thread.shutdown()

    async def __call__(self, x: np.ndarray) -> Array:
        if len(self._waiting) >= self.max_waiting:
            raise FullError
        call = _Call(x, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        self._arrived.set()
        return await call.output

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            if self.max_delay:
                await self._wait_for_more()
            await self._compute(self._next())

    async def _wait_for_more(self) -> None:
        """Until a batch is full, or its first input has waited long enough."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.max_delay):
                while sum(len(call.x) for call in self._waiting) < self.max_batch:
                    self._arrived.clear()
                    await self._arrived.wait()

    def _next(self) -> list[_Call]:
        """The oldest inputs that can be computed together."""
        batch = [self._waiting.popleft()]
        images = len(batch[0].x)
        while self._waiting:
            call = self._waiting[0]
            images += len(call.x)
            if images > self.max_batch or call.kind != batch[0].kind:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _compute(self, batch: list[_Call]) -> None:
        x = np.concatenate([call.x for call in batch]) if len(batch) > 1 else batch[0].x
        try:
            y = await asyncio.get_running_loop().run_in_executor(self._thread, self._run, x)
        except Exception as error:  # of inputs of one kind, all are wrong or none
            for call in batch:
                if not call.output.cancelled():  # nobody waits any more
                    call.output.set_exception(error)
            return
        self._on_batch(len(x))
        ends = np.cumsum([len(call.x) for call in batch])
        for call, end in zip(batch, ends, strict=True):
            if not call.output.cancelled():
                call.output.set_result(y[end - len(call.x) : end])
