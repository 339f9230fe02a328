"""Instructions of layers: tiles of vectors, whose sums stay in registers while a filter's list is
walked, or single positions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.native.interface import (
    FILTER_VECTORS,
    NOWHERE,
    ConvParameters,
    Kernel,
    Place,
    Tile,
)
from prunus_runtime.operation import Array
from prunus_runtime.plan.builder import Builder, Step
from prunus_runtime.plan.lists import (
    Lists,
    cut,
    fullness,
    held,
    make_lists,
    patches_across,
    plane_mask,
)
from prunus_runtime.plan.packed import Packed

CACHE = 32 * 1024
"""Bytes of the fastest cache that a tile's inputs may take."""
WORTH, WORTH_ACROSS = 12, 32
"""Weights of a filter that are worth going over its output once more: with vectors along a plane,
and with vectors across images, where the output is larger."""
FULL = {"avx512": 0.5, "avx2": 0.7, "portable": 1.0}
FULL_ACROSS = {"avx512": 0.65, "avx2": 0.8, "portable": 1.0}
"""The fraction of kept weights from which on a bundle's list is faster than those of its filters,
with vectors along a plane and across images: what `benchmarks/crossover.py` measured."""
FULL_PACKED, FULL_PACKED_ACROSS = 0.6, 0.75
"""The same of groups of four weights in int8: what `benchmarks/int8.py` measured."""
READ, TURNED = 0.25, 80
"""What takes as long as so many products, with vectors of filters: reading a weight, of which none
is left out, and turning a sum around."""
TILE = 6
"""Vectors of a plane that are worth going over all weights once more, in another thread."""


def fastest_lists(
    builder: Builder,
    weight: Array,
    groups: int,
    offsets: NDArray[np.int64],
    out: Place,
    *,
    is_packed: bool,
) -> Lists:
    """Lists of bundles, unless these hold too many zeros: of as many filters as vectors hold, where
    the plane is so small that vectors of filters are faster. Filters of a bundle are of one
    group."""
    full = (FULL if builder.along else FULL_ACROSS)[builder.isa]
    if is_packed:
        full = FULL_PACKED if builder.along else FULL_PACKED_ACROSS
    fits = {n: groups == 1 or len(weight) // groups % n == 0 for n in builder.bundles}
    bundled = fits[builder.bundle] and fullness(weight, builder.bundle) > full
    bundle = builder.bundle if bundled else 1
    if builder.along and not is_packed and fits[builder.filters]:
        vectors = -(-out.height * out.pitch // builder.vector)
        products = held(weight, bundle) * vectors / (1 if bundled else full)
        if _by_filters(builder, weight, out) < products:
            bundle = builder.filters
    return make_lists(weight, groups, offsets, bundle)


def _by_filters(builder: Builder, weight: Array, out: Place) -> float:
    """The work with vectors of filters, in products of vectors."""
    vectors = out.height * out.width * builder.lanes / builder.vector
    bundles = -(-len(weight) // builder.filters)
    read, ends = held(weight, builder.filters), bundles * builder.filters
    return read * (vectors + READ) + ends * vectors * TURNED


@dataclass(frozen=True)
class _Tiled:
    """A layer as tiles of vectors. Its threads take `parts`, of which `bands` share the plane: 1 if
    they share the filters instead. A tile may read `behind` floats behind the end of its input."""

    a: Place
    b: Place
    out: Place
    tiles: list[Tile]
    floats: list[Array]
    bounds: tuple[float, float]
    parts: int
    bands: int
    parameters: ConvParameters
    packed: Packed | None
    behind: int = 0

    def emit(self, builder: Builder, lists: Lists) -> None:
        by_filters = lists.bundle == builder.filters  # so many weights are read once, for all tiles
        blocks = lists.blocks(len(lists) if by_filters else 1 if self.bands > 1 else self.parts)
        assert self.a.offset + lists.reach[0] >= 0
        builder.arena = max(builder.arena, self.a.offset + lists.reach[1] + self.behind)
        tiles, planes = len(self.tiles), len(self.floats) > 1
        parameters = self.parameters._replace(
            bundle=lists.bundle, tiles=tiles, blocks=len(blocks) - 1, has_planes=planes
        )
        if lists.bundle > 1:
            parameters = parameters._replace(
                offsets=builder.add("ints", lists.offsets),
                weights=builder.add("floats", lists.values.reshape(-1)),
            )
        if self.packed is not None:
            parameters = parameters._replace(
                scales=builder.add("floats", self.packed.scales),
                corrections=builder.add("ints", self.packed.corrections(lists)),
            )
        builder.emit(
            Kernel.CONV,
            parameters,
            a=self.a,
            b=self.b,
            out=self.out,
            items=tiles * (len(blocks) - 1),
            parts=self.parts,
            ints=(lists.starts, blocks, np.array(self.tiles, np.int32).reshape(-1)),
            floats=self.floats,
            entries=(lists.entries,) if lists.bundle == 1 else (),
            bounds=self.bounds,
        )


def emit_across(
    builder: Builder,
    step: Step,
    a: Place,
    lists: Lists,
    row: int,
    column: int,
    packed: Packed | None = None,
) -> None:
    """Each vector is one position of all images; or, of one or a few, some filters of one image."""
    b, out = _residual_of(builder, step), builder.places[step.output]
    unit, most = builder.lanes, builder.most // lists.bundle
    if lists.bundle == builder.filters:
        unit, most = 1, builder.most // FILTER_VECTORS
    width = out.width * builder.lanes // unit
    floats = [_bias_of(step)]
    if "plane" in step.operation.tensors:
        plane = step.operation.tensors["plane"]
        floats.append(np.repeat(plane, width // out.width, axis=-1).reshape(-1))
    vectors = -(-out.height * out.width * builder.lanes // builder.vector)
    parts, bands = _shared(builder, lists, vectors)
    patches = patches_across(out.height, width, most, min(bands, out.height))
    tiles = [
        Tile(
            rows=patch.rows,
            columns=patch.columns,
            input=patch.y * row + patch.x * column,
            output=patch.y * out.pitch + patch.x * unit,
            residual=patch.y * b.pitch + patch.x * unit,
            plane=patch.y * width + patch.x,
        )
        for patch in patches
    ]
    parameters = ConvParameters(row=row, column=column, plane=out.height * width, plane_row=width)
    bounds = (step.low, step.high)
    whole = _Tiled(a, b, out, tiles, floats, bounds, parts, bands, parameters, packed)
    seen = max(_seen(step, patch.rows, patch.columns) for patch in patches)
    passes = _passes(step, lists, seen * unit, WORTH_ACROSS)
    _emit_in_passes(builder, whole, lists, passes)


def emit_along(
    builder: Builder, step: Step, a: Place, lists: Lists, packed: Packed | None = None
) -> None:
    """Vectors follow each other through the plane, as if it were one long row; what they compute
    between its rows is masked."""
    b, out = _residual_of(builder, step), builder.places[step.output]
    vectors = -(-out.height * out.pitch // builder.vector)
    length = vectors * builder.vector
    mask = plane_mask(out, builder.lanes, length)
    floats = [_bias_of(step)]
    if "plane" in step.operation.tensors:
        flat = np.zeros((out.channels, length), np.float32)
        plane = step.operation.tensors["plane"].reshape(out.channels, -1)
        flat[:, mask != 0] = np.repeat(plane, builder.lanes, axis=1)
        floats.append(flat.reshape(-1))
    parts, bands = _shared(builder, lists, vectors)
    edges = cut(vectors, builder.most // lists.bundle, bands)
    tiles = [Tile(1, end - begin, *[begin * builder.vector] * 4) for begin, end in pairwise(edges)]
    mask_at = -1 if mask.all() else builder.add("ints", mask)
    parameters = ConvParameters(column=builder.vector, mask=mask_at, plane=length)
    bounds = (step.low, step.high)
    whole = _Tiled(a, b, out, tiles, floats, bounds, parts, bands, parameters, packed, length)
    longest = max(tile.columns for tile in tiles) * builder.vector
    passes = _passes(step, lists, longest + lists.reach_within_plane(a), WORTH)
    _emit_in_passes(builder, whole, lists, passes)


def emit_single(builder: Builder, step: Step, a: Place, lists: Lists, is_matrix: bool) -> None:
    """One output position of one image: sums of products, without vectors of positions. A matrix
    has all weights, not just those that are kept."""
    bias, weight = _bias_of(step), step.operation.tensors["weight"]
    if "plane" in step.operation.tensors:
        bias = bias + step.operation.tensors["plane"].reshape(-1)
    parts = builder.parts(weight.size // builder.vector if is_matrix else len(lists.offsets))
    blocks = lists.blocks(parts)
    builder.emit(
        Kernel.MATRIX if is_matrix else Kernel.LINEAR,
        a=a,
        b=_residual_of(builder, step),
        out=builder.places[step.output],
        items=len(blocks) - 1,
        parts=parts,
        ints=(lists.starts, blocks),
        floats=(bias, weight.reshape(-1)) if is_matrix else (bias,),
        entries=() if is_matrix else (lists.entries,),
        bounds=(step.low, step.high),
    )


def _emit_in_passes(builder: Builder, whole: _Tiled, lists: Lists, passes: int) -> None:
    """Each pass adds what some of the input channels contribute; the last one also clamps."""
    tiled, nothing = whole, np.zeros(whole.out.channels, np.float32)
    for number, part in enumerate(lists.split(passes), 1):
        bounds = whole.bounds if number == passes else (-math.inf, math.inf)
        replace(tiled, bounds=bounds).emit(builder, part)
        in_place = [tile._replace(residual=tile.output) for tile in whole.tiles]
        tiled = replace(whole, b=whole.out, tiles=in_place, floats=[nothing])


def _passes(step: Step, lists: Lists, seen: int, worth: int) -> int:
    """How often to go over the output, each time with some of the input channels: so often that
    what all filters read at a tile (`seen` floats of each channel) stays in the fastest cache, but
    with at least `worth` weights of a filter each time. Filters of groups read few channels
    anyway."""
    if step.operation.attributes.get("groups", 1) > 1:
        return 1
    footprint = len(np.unique(lists.channels)) * seen * 4
    return max(1, min(-(-footprint // CACHE), len(lists.offsets) // max(1, len(lists)) // worth))


def _seen(step: Step, rows: int, columns: int) -> int:
    """Positions of a channel that so many output positions read."""
    attributes = step.operation.attributes
    stride, dilation = attributes.get("stride", (1, 1)), attributes.get("dilation", (1, 1))
    kernel = step.operation.tensors["weight"].shape[2:] or (1, 1)
    return math.prod(
        (n - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1
        for i, n in enumerate((rows, columns))
    )


def _shared(builder: Builder, lists: Lists, vectors: int) -> tuple[int, int]:
    """How many threads share a layer, and how many of them share its plane of so many vectors: all,
    or one if sharing the filters is better."""
    parts = builder.parts((lists.values.size + 2 * len(lists) * lists.bundle) * (vectors + 2))
    return parts, parts if vectors >= TILE * parts else 1


def _residual_of(builder: Builder, step: Step) -> Place:
    """What is added to the layer's result."""
    return NOWHERE if step.residual is None else builder.places[step.residual]


def _bias_of(step: Step) -> Array:
    """One number for each filter."""
    tensors = step.operation.tensors
    bias = tensors.get("bias", np.zeros(len(tensors["weight"]), np.float32))
    return np.ascontiguousarray(bias, np.float32)
