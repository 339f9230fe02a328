"""Where values lie: planes with zeros around them for what reads them, in one arena."""

from __future__ import annotations

import heapq
import math
from bisect import bisect
from collections.abc import Collection
from dataclasses import dataclass, field

from prunus_runtime.native.interface import Place
from prunus_runtime.operation import Shape

ALIGN = 16
"""Floats in a cache line."""
MOST_GAPS = 256
"""How many gaps between living values are tried for a new one."""


@dataclass
class Margins:
    """How far around a plane its readers look, and whether it is written in whole vectors that run
    along the plane."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0
    vectors: bool = False

    def include(self, top: int, left: int, bottom: int, right: int) -> None:
        self.top, self.left = max(self.top, top), max(self.left, left)
        self.bottom, self.right = max(self.bottom, bottom), max(self.right, right)


@dataclass
class ArenaLayout:
    """Collects what every value needs, then gives each its place in the arena."""

    lanes: int
    vector: int
    shapes: dict[str, Shape] = field(default_factory=dict)
    margins: dict[str, Margins] = field(default_factory=dict)
    packed: Collection[str] = ()
    """Values of which four channels lie where others have one."""
    _same_pitch: dict[str, str] = field(default_factory=dict)
    _places: dict[str, str] = field(default_factory=dict)

    @property
    def along(self) -> bool:
        """Whether vectors run along the positions of a plane, not just across images."""
        return self.lanes < self.vector

    def is_single(self, name: str) -> bool:
        """Whether a value has one position."""
        return self.shapes[name][1:] == (1, 1)

    def add(self, name: str, shape: Shape) -> None:
        """A vector of features has one position, a sequence is an image of one row."""
        channels = -(-shape[0] // 4) if name in self.packed else shape[0]
        self.shapes[name] = (channels, *[1] * (3 - len(shape)), *shape[1:])
        self.margins[name] = Margins()

    def tie(self, *names: str) -> None:
        """Makes the rows of these values equally far apart."""
        roots = [self._root(name) for name in names]
        for root in roots[1:]:
            if root != roots[0]:
                self._same_pitch[root] = roots[0]

    def share(self, name: str, older: str) -> None:
        """Writes `name` where `older`, of the same shape, was; nothing reads `older` after that."""
        self.tie(name, older)
        ours, theirs = self.margins[name], self.margins[older]
        theirs.include(ours.top, ours.left, ours.bottom, ours.right)
        theirs.vectors |= ours.vectors
        self.margins[name] = theirs
        self._places[name] = self._places.get(older, older)

    def _root(self, name: str) -> str:
        root = name
        while root in self._same_pitch:
            root = self._same_pitch[root]
        while name != root:  # shorter ways for the next time
            self._same_pitch[name], name = root, self._same_pitch[name]
        return root

    def place(self, lifetimes: dict[str, tuple[int, int]]) -> tuple[dict[str, Place], int]:
        """Every value's place and the size of the arena. Values whose lifetimes (first, last step)
        do not overlap share memory."""
        columns: dict[str, int] = {}
        for name, (_, _, width) in self.shapes.items():
            need = width + max(self.margins[name].left, self.margins[name].right)
            columns[self._root(name)] = max(need, columns.get(self._root(name), 0))
        lives: dict[str, tuple[int, int]] = {}
        for name, (born, died) in lifetimes.items():
            place = self._places.get(name, name)
            first, last = lives.get(place, (born, died))
            lives[place] = (min(first, born), max(last, died))
        unplaced = {name: self._sized(name, columns[self._root(name)]) for name in lives}
        placed, size = _pack(unplaced, lives)
        return {name: placed[self._places.get(name, name)] for name in self.shapes}, size

    def _sized(self, name: str, columns: int) -> Place:
        channels, height, width = self.shapes[name]
        margins = self.margins[name]
        pitch = columns * self.lanes
        body = height * pitch
        lead = _round_up(margins.top * pitch + margins.left * self.lanes, ALIGN)
        tail = margins.bottom * pitch
        if margins.vectors:
            tail = max(tail, _round_up(body, self.vector) - body)
        plane = body + max(lead, tail)
        if plane > self.lanes:
            plane = _spread(_round_up(plane, ALIGN))
        return Place(0, plane, pitch, lead, plane - body, channels, height, width)


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _spread(plane: int) -> int:
    """Planes that are a power of two apart would compete for the same few lines of the cache."""
    lines = plane // ALIGN
    return plane + ALIGN if lines >= 8 and lines % 2 == 0 else plane


def _pack(
    places: dict[str, Place], lifetimes: dict[str, tuple[int, int]]
) -> tuple[dict[str, Place], int]:
    """Each value, in order of birth, goes to the lowest address where no living value is."""
    result, size = {}, 0
    gaps: list[tuple[int, float]] = [(0, math.inf)]  # by address; none touches another
    living: list[tuple[int, int, int]] = []  # a heap: last step, begin, end
    for name in sorted(places, key=lambda name: lifetimes[name]):
        place, (born, died) = places[name], lifetimes[name]
        while living and living[0][0] < born:
            _release(gaps, *heapq.heappop(living)[1:])
        # Of very many gaps only the first are tried, so that planning takes no more than linear
        # time; the last one has no end.
        tried = [*range(min(len(gaps), MOST_GAPS)), len(gaps) - 1]
        number = next(i for i in tried if gaps[i][1] - gaps[i][0] >= place.size)
        start, gap_end = gaps[number]
        end = start + _round_up(place.size, ALIGN)
        gaps[number : number + 1] = [(end, gap_end)] if end < gap_end else []
        heapq.heappush(living, (died, start, end))
        result[name] = place._replace(offset=start + place.lead)
        size = max(size, start + place.size)
    return result, size


def _release(gaps: list[tuple[int, float]], begin: int, end: float) -> None:
    """Makes a gap of [begin, end), together with those that it touches."""
    number = bisect(gaps, (begin, end))
    if number < len(gaps) and gaps[number][0] == end:
        end = gaps.pop(number)[1]
    if number > 0 and gaps[number - 1][1] == begin:
        number -= 1
        begin = gaps.pop(number)[0]
    gaps.insert(number, (begin, end))
