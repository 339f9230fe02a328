"""Kept weights as lists of (input offset, value), and the cuts of a plane that walk them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.native import ENTRY
from prunus_runtime.native.interface import Place
from prunus_runtime.operation import Array


@dataclass(frozen=True)
class Lists:
    """What each filter, or each bundle of neighbours, reads: list l is [starts[l], starts[l + 1])
    of `offsets`, where the inputs are, of `values`, a weight of each filter of the bundle, and of
    `channels`, those that they read. Without bundles these are the kept weights."""

    starts: NDArray[np.int32]
    offsets: NDArray[np.int32]
    values: NDArray[np.float32]
    channels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def bundle(self) -> int:
        """Filters of a list."""
        return int(self.values.shape[1])

    @property
    def entries(self) -> NDArray[np.void]:
        """Offsets and values of lists of one filter."""
        entries = np.empty(len(self.offsets), ENTRY)
        entries["offset"], entries["value"] = self.offsets, self.values[:, 0]
        return entries

    def split(self, parts: int) -> list[Lists]:
        """Lists of consecutive channels, `parts` of about equal length."""
        if parts == 1:
            return [self]
        edges = np.quantile(self.channels, np.linspace(0, 1, parts + 1)[1:-1])
        part = np.searchsorted(edges, self.channels, side="left")
        return [self._of(part == number) for number in range(parts)]

    def _of(self, chosen: NDArray[np.bool_]) -> Lists:
        before = np.concatenate([[0], np.cumsum(chosen)]).astype(np.int32)
        return Lists(
            before[self.starts], self.offsets[chosen], self.values[chosen], self.channels[chosen]
        )

    @property
    def reach(self) -> tuple[int, int]:
        """The least and the greatest offset."""
        if not len(self.offsets):
            return 0, 0
        return int(self.offsets.min()), int(self.offsets.max())

    def reach_within_plane(self, place: Place) -> int:
        """How far from each other the inputs of one output position in one channel can be."""
        if not len(self.offsets):
            return 0
        inside = self.offsets % place.plane
        outside = np.where(inside > place.plane // 2, inside - place.plane, inside)
        return int(outside.max() - outside.min())

    def blocks(self, count: int) -> NDArray[np.int32]:
        """First lists of `count` blocks of about equal work, and the end."""
        # Storing an output costs about as much as walking over a few weights.
        work = self.starts + 4 * np.arange(len(self) + 1)
        goals = np.linspace(0, work[-1], min(count, max(len(self), 1)) + 1)[1:-1]
        return np.unique([0, *np.searchsorted(work, goals), len(self)]).astype(np.int32)


def make_lists(weight: Array, groups: int, offsets: NDArray[np.int64], bundle: int = 1) -> Lists:
    """`offsets` (channels, kh, kw): where each input of the first output position is."""
    filters, depth = weight.shape[:2]
    bundles = _in_bundles(weight, bundle)
    number, c, y, x = np.nonzero(_read_by(bundles))
    channel = number * bundle // max(filters // groups, 1) * depth + c
    starts = np.zeros(len(bundles) + 1, np.int32)
    np.cumsum(np.bincount(number, minlength=len(bundles)), out=starts[1:])
    values = np.ascontiguousarray(bundles[number, :, c, y, x], np.float32)
    return Lists(starts, offsets[channel, y, x].astype(np.int32), values, channel)


def held(weight: Array, bundle: int) -> int:
    """Weights in lists of bundles, with the zeros that others of their bundle keep."""
    return bundle * int(np.count_nonzero(_read_by(_in_bundles(weight, bundle))))


def fullness(weight: Array, bundle: int) -> float:
    """The fraction of kept weights in lists of bundles."""
    return int(np.count_nonzero(weight)) / max(1, held(weight, bundle))


def _in_bundles(weight: Array, bundle: int) -> Array:
    """The weights as (bundles, filters of one, channels, kh, kw); the last may get zeros."""
    if missing := -len(weight) % bundle:
        weight = np.concatenate([weight, np.zeros((missing, *weight.shape[1:]), np.float32)])
    return weight.reshape(len(weight) // bundle, bundle, *weight.shape[1:])


def _read_by(bundles: Array) -> NDArray[np.bool_]:
    """Whether any filter of a bundle reads an input."""
    read: NDArray[np.bool_] = (bundles != 0).any(axis=1)
    return read


@dataclass(frozen=True)
class Patch:
    """A part of the output plane: `rows` x `columns` vectors, from a position on."""

    rows: int
    columns: int
    y: int
    x: int


def patches_across(height: int, width: int, most: int, bands: int) -> list[Patch]:
    """A plane of vectors cut into `bands` of rows, and these into blocks of 4, 2 or 1 rows: the cut
    that needs the fewest broadcasts."""
    patches = []
    for begin, end in pairwise([height * band // bands for band in range(bands + 1)]):
        cuts = (_blocks(end - begin, width, rows, most) for rows in (4, 2, 1) if rows <= most)
        patches += [replace(patch, y=patch.y + begin) for patch in min(cuts, key=len)]
    return patches


def _blocks(height: int, width: int, rows: int, most: int) -> list[Patch]:
    edges = cut(width, most // rows)
    whole = height // rows * rows
    patches = [
        Patch(rows, end - begin, y, begin)
        for y in range(0, whole, rows)
        for begin, end in pairwise(edges)
    ]
    if whole == height:
        return patches
    rest = _blocks(height - whole, width, rows // 2, most)
    return patches + [replace(patch, y=patch.y + whole) for patch in rest]


def cut(length: int, most: int, multiple: int = 1) -> Sequence[int]:
    """Edges of equal pieces of at most `most`: a `multiple` of some number of them."""
    pieces = -(-length // (most * multiple)) * multiple
    return [length * i // pieces for i in range(pieces + 1)]


def plane_mask(place: Place, lanes: int, length: int) -> NDArray[np.int32]:
    """All bits at positions of a plane, no bits in the columns between its rows."""
    position = np.arange(length)
    inside = position % place.pitch < place.width * lanes
    inside &= position < place.height * place.pitch
    return np.where(inside, -1, 0).astype(np.int32)
