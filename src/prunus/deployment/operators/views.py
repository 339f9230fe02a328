"""Operators that only change how PyTorch reads a value, and values as other operators need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prunus.deployment.axes import BATCH, Atom, Axes, count, reshaped, standard, whole
from prunus.deployment.operators.walk import (
    OPERATORS,
    Arguments,
    Unsupported,
    Value,
    register,
    view_of,
)

if TYPE_CHECKING:
    from prunus.deployment.walk import Walk


@register(OPERATORS, "permute", "transpose", "t")
def _permute(walk: Walk, a: Arguments) -> Value:
    x = view_of(a["self"])
    axes = list(walk.axes(x))
    if "dims" in a:
        return walk.view(x, tuple(axes[dim] for dim in a["dims"]))
    first, second = a.get("dim0", 0), a.get("dim1", 1)
    axes[first], axes[second] = axes[second], axes[first]
    return walk.view(x, tuple(axes))


@register(OPERATORS, "expand")
def _expand(walk: Walk, a: Arguments) -> Value:
    x = view_of(a["self"])
    if [size.number for size in walk.node_sizes()] != [count(axis) for axis in walk.axes(x)]:
        raise Unsupported("where it makes a value larger")
    return x


def reviewed(walk: Walk, x: Value) -> Value:
    """`x` in the shape of the node, by other axes of the same value."""
    axes = reshaped(walk.axes(x), walk.node_sizes())
    if axes is None:
        sizes = [size.number for size in walk.node_sizes()]
        raise Unsupported(f"from {walk.shapes[x]} to {sizes}, which mixes channels and positions")
    viewed = walk.view(x, axes)
    for value in (viewed, _transposed(walk, viewed)) if len(walk.shapes[x]) == 2 else ():
        everything = tuple(atom for axis in standard(walk.shapes[value])[1:] for atom in axis)
        if walk.axes(value) == ((BATCH,), everything):
            return walk.add("flatten", value)
    return viewed if len(axes) == 1 + len(walk.shapes[x]) else as_sequence(walk, viewed)


def as_sequence(walk: Walk, x: Value) -> Value:
    """`x` as a value of the shape (channels, positions), if it is an image."""
    shape, axes = walk.shapes[x], walk.axes(x)
    if len(shape) < 3:
        return x
    positions = shape[1] * shape[2]
    grid, row = (*whole(1, shape[1]), *whole(2, shape[2])), whole(1, positions)
    changed = tuple(row if axis == grid else axis for axis in axes)
    if positions > 1 and grid not in axes:
        raise Unsupported("on positions of images that are not side by side")
    made = walk.add("reshape", x, shape=(shape[0], positions))
    return walk.view(made, changed)


def features_at(walk: Walk, x: Value, dim: int) -> Value:
    """`x` as a value whose channels are PyTorch's axis `dim`, all of them."""
    axes, shape = walk.axes(x), walk.shapes[x]
    if axes[dim] == whole(0, shape[0]):
        return x
    if len(shape) == 2 and axes[dim] == whole(1, shape[1]):
        return _transposed(walk, x)
    raise Unsupported(f"over dimension {dim}, which is not all of the channels or features")


def _transposed(walk: Walk, x: Value) -> Value:
    """The same tensor as a value whose channels are the positions of `x`."""
    swapped = {0: 1, 1: 0}
    axes = tuple(
        tuple(atom._replace(dim=swapped.get(atom.dim, atom.dim)) for atom in axis)
        for axis in walk.axes(x)
    )
    shape = walk.shapes[x][::-1]
    made = walk.add("transpose", x, shape=shape)
    return walk.view(made, axes)


def settled(walk: Walk, x: Value) -> Value:
    """`x` as a value whose dimensions are in PyTorch's order."""
    if x.axes is None:
        return x
    if len(walk.shapes[x]) == 2:
        made = _transposed(walk, x)
        if made.axes is None:
            return made
    raise Unsupported("in an order of dimensions other than (batch, positions, channels)")


def without_axis(axes: Axes, dim: int, keep: bool) -> Axes:
    """The axes without `dim`, of which one element is left; with `keep` it stays, of size 1."""
    dim %= len(axes)
    return (*axes[:dim], *([()] if keep else []), *axes[dim + 1 :])


def part_of(walk: Walk, x: Value, dim: int, part: slice) -> Value:
    """`x[:, ..., part]` at PyTorch's axis `dim`."""
    axes, shape = walk.axes(x), walk.shapes[x]
    dim %= len(axes)
    axis = axes[dim]
    if len(axis) != 1 or axis[0] == BATCH:
        raise Unsupported("on anything but channels, height and width, or positions")
    (atom,) = axis
    start, stop, step = part.indices(atom.size)
    outermost = atom.size * atom.stride == shape[atom.dim]
    if start >= stop or not outermost or (step != 1 and atom.stride != 1):
        raise Unsupported("for nothing at all, or for a part of each of several groups")
    bounds = [[0, size, 1] for size in shape]
    bounds[atom.dim] = [start * atom.stride, stop * atom.stride, step]
    starts, stops, steps = (list(bound) for bound in zip(*bounds, strict=True))
    left = len(range(start, stop, step))
    rest = (Atom(atom.dim, left, atom.stride),) if left > 1 else ()
    sizes = [len(range(*bound)) for bound in bounds]
    made = walk.add("slice", x, shape=sizes, start=starts, stop=stops, step=steps)
    return walk.view(made, (*axes[:dim], rest, *axes[dim + 1 :]))


@register(OPERATORS, "select")
def _select(walk: Walk, a: Arguments) -> Value:
    return _one_of(walk, view_of(a["self"]), a["dim"], a["index"])


@register(OPERATORS, "unbind")
def _unbind(walk: Walk, a: Arguments) -> list[Value]:
    x = view_of(a["self"])
    size = count(walk.axes(x)[a["dim"]])
    return [_one_of(walk, x, a["dim"], index) for index in range(size)]


def _one_of(walk: Walk, x: Value, dim: int, index: int) -> Value:
    axes = walk.axes(x)
    if axes[dim]:
        index %= count(axes[dim])
        x = part_of(walk, x, dim, slice(index, index + 1))
    rest = without_axis(walk.axes(x), dim, keep=False)
    if walk.shapes[x][1:] == (1,):  # one position: features
        x = walk.add("flatten", x, shape=walk.shapes[x][:1])
    return walk.view(x, rest)
