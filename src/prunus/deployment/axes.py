"""Which axis of a PyTorch tensor is what of a value: for networks that view, transpose and reshape.

A value of a graph has the shape (channels, ...positions), and no order but this one. What PyTorch
does to the order of dimensions, `view`, `permute`, `transpose`, `unsqueeze`, only changes how its
tensor is read: each of its axes is a list of atoms, the first one outermost. An atom is the batch,
or a factor of one dimension of the value: with `stride` s and `size` n it is (index // s) % n.
An attention with 4 heads of 8 channels reads (128, 32) as (batch, head, position, channel):
(BATCH,), (Atom(0, 4, 8),), (Atom(1, 32, 1),), (Atom(0, 8, 1),).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from prunus_runtime.graph import Shape


class Atom(NamedTuple):
    """A factor of dimension `dim` of a value, or the batch."""

    dim: int
    size: int
    stride: int


BATCH = Atom(-1, 1, 1)
Axis = tuple[Atom, ...]
Axes = tuple[Axis, ...]


class Size(NamedTuple):
    """The size of an axis: a number, times the size of the batch or not."""

    of_batch: bool
    number: int


def whole(dim: int, size: int) -> Axis:
    """The axis that is all of dimension `dim`; one of size 1 has no atoms."""
    return (Atom(dim, size, 1),) if size > 1 else ()


def standard(shape: Shape) -> Axes:
    """(batch, channels, ...positions), as a graph and PyTorch's convolutions have it."""
    return ((BATCH,), *(whole(dim, size) for dim, size in enumerate(shape)))


def count(axis: Axis) -> int:
    """The size of an axis, with a batch of one."""
    product = 1
    for atom in axis:
        product *= atom.size
    return product


def merged(axis: Sequence[Atom]) -> Axis:
    """The same axis with as few atoms as possible."""
    result: list[Atom] = []
    for atom in axis:
        last = result[-1] if result else None
        if last and last.dim == atom.dim >= 0 and last.stride == atom.size * atom.stride:
            result[-1] = Atom(atom.dim, last.size * atom.size, atom.stride)
        else:
            result.append(atom)
    return tuple(result)


def reshaped(axes: Axes, sizes: Sequence[Size]) -> Axes | None:
    """The axes after a `view` as `sizes`; None if that would cut or join what does not fit."""
    atoms = [atom for axis in axes for atom in axis]
    result = []
    for of_batch, left in sizes:
        axis = []
        while left > 1 or of_batch:
            if not atoms:
                return None
            atom = atoms.pop(0)
            if atom == BATCH:
                if not of_batch:
                    return None
                of_batch = False
            elif left % atom.size == 0:
                left //= atom.size
            elif left > 1 and atom.size % left == 0:
                inner = atom.size // left
                atoms.insert(0, Atom(atom.dim, inner, atom.stride))
                atom, left = Atom(atom.dim, left, atom.stride * inner), 1
            else:
                return None
            axis.append(atom)
        result.append(merged(axis))
    return None if atoms else tuple(result)


def arranged(tensor: Tensor, axes: Axes, shape: Shape) -> Tensor:
    """A constant that PyTorch would combine with a tensor of these axes, as a value of `shape`."""
    atoms = [atom for axis in axes for atom in axis]
    split = tensor.expand([count(axis) for axis in axes]).reshape([atom.size for atom in atoms])
    order = sorted(range(len(atoms)), key=lambda i: (atoms[i].dim, -atoms[i].stride))
    return split.permute(order).reshape(shape)
