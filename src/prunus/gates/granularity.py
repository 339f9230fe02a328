"""How many weights share one gate: a gate's score broadcasts against a view of its weight."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from torch import Tensor, nn

from prunus.errors import SettingError
from prunus.selection import Candidate, is_transposed_linear

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)

Granularity = str | tuple[int, int]
"""`"weight"`, `"kernel"`, `"filter"` (also: neuron, row), or a block `(outputs, inputs)`; or a
pattern such as `"2:4"`: one gate a weight, and of 4 neighbouring inputs 2 are kept."""


@dataclass(frozen=True)
class Pattern:
    """N:M: of each `of` neighbours along an axis of the weight, `kept` are kept."""

    kept: int
    of: int
    axis: int

    def groups(self, weight: Tensor) -> Tensor:
        """The groups along the last axis."""
        shape = weight.shape
        split = weight.reshape(*shape[: self.axis], -1, self.of, *shape[self.axis + 1 :])
        return split.movedim(self.axis + 1, -1)

    def ungroup(self, groups: Tensor) -> Tensor:
        """The weight whose groups these are."""
        return groups.movedim(-1, self.axis + 1).flatten(self.axis, self.axis + 1)


@dataclass(frozen=True)
class Layout:
    """`(weight.view(view) * score).view(weight)` is the gated weight."""

    weight: tuple[int, ...]
    view: tuple[int, ...]
    score: tuple[int, ...]
    pattern: Pattern | None = None

    @property
    def weights_per_gate(self) -> int:
        return math.prod(self.view) // max(1, math.prod(self.score))


def layout(candidate: Candidate, granularity: Granularity) -> Layout:
    """The layout of one weight tensor, or an error if blocks do not fit it."""
    shape = tuple(candidate.parameter.shape)
    if candidate.kind == "expert" and granularity != "weight":
        raise SettingError(
            f"granularity={granularity!r}: which axis of {candidate.name} (shape {shape}) has the "
            "inputs of an expert is not known; leave it out, as by exclude='expert'"
        )
    if pattern := pattern_for(candidate, granularity):
        return Layout(shape, shape, shape, pattern)
    sizes, roles = _axes(candidate.module, shape)
    share = _share(granularity)
    view: list[int] = []
    score: list[int] = []
    for size, role in zip(sizes, roles, strict=True):
        block = share.get(role, 1) or size  # 0 stands for the whole axis
        if size % block:
            raise SettingError(
                f"granularity={granularity}: blocks of {block} do not divide the {size} "
                f"{role}puts of {candidate.name} (shape {shape}); choose a block size that does, "
                "or select other weights"
            )
        if block in (1, size):
            view.append(size)
            score.append(size if block == 1 else 1)
        else:
            view += [size // block, block]
            score += [size // block, 1]
    return Layout(shape, tuple(view), tuple(score))


def parse_pattern(granularity: Granularity) -> tuple[int, int] | None:
    """`(N, M)` if it is a pattern N:M."""
    found = re.fullmatch(r"([0-9]{1,4}):([0-9]{1,4})", str(granularity))
    if found is None:
        return None
    kept, of = map(int, found.groups())
    if not 1 <= kept < of:
        raise SettingError(
            f"granularity={granularity!r}: of M weights, from 1 to M - 1 are kept, as in '2:4'"
        )
    return kept, of


def pattern_for(candidate: Candidate, granularity: Granularity) -> Pattern | None:
    """How a pattern N:M lies on a weight tensor, or an error if it does not fit."""
    fraction = parse_pattern(granularity)
    if fraction is None:
        return None
    kept, of = fraction
    shape = tuple(candidate.parameter.shape)
    sizes, roles = _axes(candidate.module, shape)
    inputs = sizes[roles.index("in")] if "in" in roles else 1
    if inputs % of:
        raise SettingError(
            f"granularity={granularity!r}: groups of {of} do not divide the {inputs} inputs of "
            f"{candidate.name} (shape {shape}); leave that weight out of select"
        )
    # A transposed convolution has its groups before its inputs, on one axis: M divides both.
    return Pattern(kept, of, axis=max(0, roles.index("in") - (len(sizes) - len(shape))))


def _share(granularity: Granularity) -> dict[str, int]:
    """Along each axis, how many weights share a gate (0: all of them)."""
    if granularity == "weight":
        return {}
    if granularity == "kernel":
        return {"kernel": 0}
    if granularity == "filter":
        return {"in": 0, "kernel": 0}
    if isinstance(granularity, tuple | list) and len(granularity) == 2:
        out, into = granularity
        if all(isinstance(n, int) and n > 0 for n in (out, into)):
            return {"out": out, "in": into, "kernel": 0}
    raise SettingError(
        f"granularity={granularity!r} is not one of 'weight', 'kernel', 'filter', a pattern such "
        "as '2:4', or a block (outputs, inputs) of two positive integers"
    )


def _axes(module: nn.Module, shape: tuple[int, ...]) -> tuple[list[int], list[str]]:
    """Sizes and roles of a weight's axes; what is not a convolution counts as (out, in, ...)."""
    if len(shape) == 1:  # a bias
        return list(shape), ["out"]
    kernel = ["kernel"] * (len(shape) - 2)
    if isinstance(module, TRANSPOSED):  # stored as (in, out / groups, *kernel)
        sizes = [module.groups, shape[0] // module.groups, *shape[1:]]
        return sizes, ["group", "in", "out", *kernel]
    if is_transposed_linear(module):
        return list(shape), ["in", "out"]
    return list(shape), ["out", "in", *kernel][: len(shape)]
