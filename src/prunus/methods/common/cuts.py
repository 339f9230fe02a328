"""Where to cut a ranking of many numbers, exactly and without sorting them.

A sample tells between which two keys the cut will fall. One pass over all numbers counts those
above and picks out those between, and only these are sorted. If the sample was misleading, another
pass follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from prunus.methods.common.processes import ALONE, Processes

_SAMPLE = 1 << 17
"""So many numbers at most tell where the cut will fall."""

_CHUNK = 1 << 17
"""So many numbers are looked at together: they stay in the processor's cache."""

_ALONE = 1 << 21
"""Below so many numbers, one thread is done before others have started."""

T = TypeVar("T")


class Ranked(NamedTuple):
    """One tensor of a ranking. Its numbers rank by their key, `(value - offset) / unit`."""

    values: Tensor
    weight: float = 1.0
    """What keeping one of them costs."""
    unit: float = 1.0
    offset: float = 0.0

    def level(self, key: float) -> float:
        """The value that has this key."""
        return key * self.unit + self.offset

    def chunks(self) -> Iterator[Any]:
        """All keys: arrays, or one tensor if it is not on a CPU."""
        flat = self.values.detach().flatten()
        if flat.device.type != "cpu":
            yield self._key(flat)
        else:
            array = flat.numpy()
            for start in range(0, len(array), _CHUNK):
                yield self._key(array[start : start + _CHUNK])

    def sample(self, stride: int) -> Any:
        """Each `stride`-th of the keys, as an array."""
        return self._key(self.values.detach().flatten()[::stride].cpu().numpy())

    def lowest(self) -> Tensor:
        """The lowest key that is not minus infinity, on the CPU."""
        values = self.values.detach()
        finite = values.where(values > -torch.inf, torch.inf).flatten()
        lowest = torch.cat([finite, finite.new_full((1,), torch.inf)]).amin()  # there may be none
        key: Tensor = self._key(lowest.cpu())
        return key

    def mask(self, cut: Cut, ties: int) -> Tensor:
        """What is above the cut, and the first `ties` of those that are equal to it."""
        keys = self._key(self.values.detach())
        mask: Tensor = keys > cut.tau
        if not ties:
            return mask
        flat = mask.flatten()
        flat[(keys == cut.tau).flatten().nonzero()[:ties, 0]] = True
        return flat.view(mask.shape)

    def _key(self, values: Any) -> Any:
        if self.offset:
            values = values - self.offset
        return values if self.unit == 1 else values / self.unit


class Cut(NamedTuple):
    """What is kept of a ranking: all keys above a threshold, and some of those equal to it."""

    tau: float
    """The highest key of which not all are kept; minus infinity if all others are."""
    ties: int = 0
    """How many of those equal to `tau` are kept: the first ones."""


def find_cut(parts: Sequence[Ranked], budget: float, processes: Processes = ALONE) -> Cut:
    """Keep the highest keys, until what they cost is as near to `budget` as it can be.

    Minus infinity is never kept.
    """
    low, high = _bracket(parts, budget, processes)
    ends = False  # which cost time, and hardly ever matter
    while True:
        runs = _survey(parts, low, high, processes, ends=ends)
        kept = runs.kept(budget)
        removed = np.flatnonzero(kept < runs.counts)
        if budget >= runs.above and len(removed):
            tau = runs.keys[removed[0]]
            return Cut(float(tau), int(kept[runs.keys == tau].sum()))
        if not ends:
            ends = True
        elif budget < runs.above:
            low, high = high, math.inf
        elif low > -math.inf:
            low, high = -math.inf, low
        else:
            return Cut(-math.inf)


def masks(parts: Sequence[Ranked], cut: Cut, processes: Processes = ALONE) -> Iterator[Tensor]:
    """What is kept of each part, as a bool tensor of its shape."""
    for part, ties in zip(parts, _own_ties(parts, cut, processes), strict=True):
        yield part.mask(cut, ties)


def cost(
    parts: Sequence[Ranked], cut: Cut, weights: Sequence[float], processes: Processes = ALONE
) -> float:
    """What is kept, in other weights than those of the parts."""
    above = _for_each(parts, lambda part: sum(_number(k > cut.tau) for k in part.chunks()))
    kept = processes.sum(np.array(above) + _own_ties(parts, cut, processes))
    return float(np.dot(kept, weights))


class _Runs(NamedTuple):
    """Keys in falling order, each as often as its count says."""

    above: float
    """What those cost that are higher than all of these."""
    keys: Any
    weights: Any
    counts: Any

    def kept(self, budget: float) -> Any:
        """How many of each run are kept."""
        before = self.above + np.cumsum(self.weights * self.counts) - self.weights * self.counts
        # To the nearest, and where two are as near to the one that keeps fewer.
        share = np.ceil((budget - before) / self.weights - 0.5)
        return np.clip(share, 0, self.counts).astype(np.int64)


def _survey(
    parts: Sequence[Ranked], low: float, high: float, processes: Processes, *, ends: bool
) -> _Runs:
    """What there is between `low` and `high`; with the `ends`, unless one is minus infinity."""

    def look(part: Ranked) -> tuple[list[int], Any]:
        above = at_high = at_low = 0
        picked = [np.empty(0, np.float32)]
        for keys in part.chunks():
            from_high = keys >= high
            above += _number(from_high)
            if low < high:
                picked.append(_array(keys[(keys > low) ^ from_high]))
            if ends:
                at_high += _number(keys == high)
            if ends and -math.inf < low < high:
                at_low += _number(keys == low)
        return [above, at_high, at_low], np.concatenate(picked)

    columns, picked = zip(*_for_each(parts, look), strict=True)
    counts = np.array(columns, dtype=np.int64).T  # at high and above, at high, at low
    from_high, at_high, at_low = processes.sum(counts)
    weight_of = np.array([part.weight for part in parts])
    keys = np.concatenate(processes.gather(np.concatenate(picked)))
    weights = np.concatenate(processes.gather(np.repeat(weight_of, [len(p) for p in picked])))
    if len(set(weight_of)) == 1:
        keys = np.sort(keys)[::-1]
    else:
        order = np.argsort(-keys, kind="stable")
        keys, weights = keys[order], weights[order]
    highest, lowest = np.full(len(parts), high), np.full(len(parts), low)
    return _Runs(
        above=float(np.dot(from_high - at_high, weight_of)),
        keys=np.concatenate([highest, keys, lowest]),
        weights=np.concatenate([weight_of, weights, weight_of]),
        counts=np.concatenate([at_high, np.ones(len(keys), dtype=np.int64), at_low]),
    )


def _bracket(parts: Sequence[Ranked], budget: float, processes: Processes) -> tuple[float, float]:
    """Two keys between which the cut falls almost certainly."""
    sizes = processes.sum(np.array([part.values.numel() for part in parts]))
    number = int(sizes.sum())
    # Of n numbers, k in a sample leave about n/sqrt(k) between the two keys: so neither is large.
    # The stride is odd, because shapes are even.
    stride = int(number / min(_SAMPLE, 1 + 4 * number ** (2 / 3))) | 1
    samples = [part.sample(stride) for part in parts]
    weights = np.repeat([part.weight for part in parts], [len(sample) for sample in samples])
    keys = np.concatenate(processes.gather(np.concatenate(samples)))
    weights = np.concatenate(processes.gather(weights))
    order = np.argsort(keys)[::-1]
    keys, reached = keys[order], np.cumsum(weights[order])
    total = sum(size * part.weight for size, part in zip(sizes, parts, strict=True))
    share = min(1.0, budget / total)
    deviation = math.sqrt(max(share * (1 - share), 1 / len(keys)) * (weights**2).sum())
    middle = share * reached[-1]
    first, last = np.searchsorted(reached, [middle - 5 * deviation, middle + 5 * deviation])
    return (
        -math.inf if last + 1 >= len(keys) else float(keys[last + 1]),
        math.inf if first == 0 else float(keys[first - 1]),
    )


def _own_ties(parts: Sequence[Ranked], cut: Cut, processes: Processes) -> list[int]:
    """How many of those equal to `tau` this process keeps of each part."""
    if not cut.ties:
        return [0] * len(parts)
    equal = _for_each(parts, lambda part: sum(_number(k == cut.tau) for k in part.chunks()))
    # They come in the order of the parts, and within a part in that of the processes.
    everywhere = np.stack(processes.gather(np.array(equal)), axis=1)
    before = np.cumsum(everywhere).reshape(everywhere.shape) - everywhere
    return [int(n) for n in np.clip(cut.ties - before[:, processes.rank], 0, equal)]


def _for_each(parts: Sequence[Ranked], function: Callable[[Ranked], T]) -> list[T]:
    """What `function` returns for each part, by as many threads as PyTorch has."""
    threads = torch.get_num_threads()
    if threads == 1 or sum(part.values.numel() for part in parts) < _ALONE:
        return list(map(function, parts))
    with ThreadPoolExecutor(threads) as pool:  # numpy lets other threads run while it counts
        return list(pool.map(function, parts))


def _number(mask: Any) -> int:
    return int(np.count_nonzero(mask) if isinstance(mask, np.ndarray) else mask.count_nonzero())


def _array(keys: Any) -> Any:
    return keys if isinstance(keys, np.ndarray) else keys.cpu().numpy()
