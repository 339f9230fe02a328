"""The batcher: who goes with whom, and that everybody gets their own output."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from prunus_runtime.serving.batching import Batcher, FullError


class Network:
    """Adds one; remembers the sizes of its batches, and computes when it is told to."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.go = threading.Event()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        assert self.go.wait(60)
        self.batches.append(len(x))
        if (x < 0).any():
            raise ValueError("negative")
        return x + 1


def inputs(*rows: int) -> list[np.ndarray]:
    """Arrays with so many rows, all with different numbers."""
    column = np.arange(sum(rows), dtype=np.float32)[:, None]
    return np.split(column, np.cumsum(rows)[:-1])


def test_what_arrives_meanwhile_goes_together() -> None:
    network = Network()

    async def run() -> list[np.ndarray]:
        async with Batcher(network, max_batch=4) as batcher:
            calls = [asyncio.create_task(batcher(x)) for x in inputs(1, 2, 1, 1, 9, 1)]
            await asyncio.sleep(0.05)
            assert batcher.waiting == 3  # the first batch is with the network
            network.go.set()
            return await asyncio.gather(*calls)

    found = asyncio.run(run())
    for x, y in zip(inputs(1, 2, 1, 1, 9, 1), found, strict=True):
        np.testing.assert_array_equal(y, x + 1)
    # 1+2+1 fill a batch; 1 alone, as 9 do not fit with it; 9 are more than a batch, and alone.
    assert network.batches == [4, 1, 9, 1]


def test_different_kinds_do_not_mix_and_errors_stay_with_theirs() -> None:
    network = Network()
    network.go.set()

    async def run() -> list[object]:
        async with Batcher(network) as batcher:
            many = [*inputs(1, 1), np.zeros((1, 2), np.float32), -np.ones((1, 3), np.float32)]
            calls = [batcher(x) for x in many]
            return await asyncio.gather(*calls, return_exceptions=True)

    *good, bad = asyncio.run(run())
    assert [np.shape(y) for y in good] == [(1, 1), (1, 1), (1, 2)]
    assert isinstance(bad, ValueError)
    assert network.batches == [2, 1, 1]


def test_a_delay_waits_for_others_until_the_batch_is_full() -> None:
    network = Network()
    network.go.set()

    async def run() -> None:
        async with Batcher(network, max_batch=2, max_delay=60) as batcher:
            first = asyncio.create_task(batcher(inputs(1)[0]))
            await asyncio.sleep(0.05)
            assert network.batches == [] and not first.done()
            await asyncio.gather(first, batcher(inputs(1)[0]))
        async with Batcher(network, max_delay=0.01) as batcher:
            await batcher(inputs(1)[0])

    asyncio.run(run())
    assert network.batches == [2, 1]


def test_a_full_queue_refuses() -> None:
    network = Network()

    async def run() -> None:
        async with Batcher(network, max_batch=1, max_waiting=2) as batcher:
            calls = [asyncio.create_task(batcher(x)) for x in inputs(1)]
            await asyncio.sleep(0.05)
            calls += [asyncio.create_task(batcher(x)) for x in inputs(1, 1)]
            await asyncio.sleep(0)
            with pytest.raises(FullError):
                await batcher(inputs(1)[0])
            calls[1].cancel()  # a caller that is gone harms nobody
            network.go.set()
            await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(run())
    assert network.batches == [1, 1, 1]
