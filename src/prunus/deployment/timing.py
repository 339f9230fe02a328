"""Times several ways to do the same thing, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from time import perf_counter, sleep
from typing import Any

import torch

_PAUSE, _WARM, _COUNTED = 0.05, 0.05, 0.1
"""Seconds of each turn."""
_FEWEST_TURNS = 3


def medians(ways: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Median seconds of a call of each way, measured for about `seconds` in all.

    They take turns, so that a busy machine slows all of them alike. A turn begins with a pause, in
    which the threads of the previous way stop waiting for work, and with calls that are not
    counted, which warm the caches and wake its own threads.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # the first call prepares
    end, turns = perf_counter() + seconds, 0
    while perf_counter() < end or turns < _FEWEST_TURNS:
        turns += 1
        for name, way in ways.items():
            sleep(_PAUSE)
            _call(way, _WARM)
            times[name] += _call(way, _COUNTED)
    return {name: median(values) for name, values in times.items()}


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Within this context, PyTorch computes with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _call(way: Callable[[], Any], seconds: float) -> list[float]:
    """Seconds of each call, until `seconds` are over."""
    times: list[float] = []
    end = perf_counter() + seconds
    while not times or perf_counter() < end:
        start = perf_counter()
        way()
        times.append(perf_counter() - start)
    return times
