"""The native core through ctypes: the table of `native/table.h` as numpy types, and `run`."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.compile import LIBRARY
from prunus_runtime.graph import Array

ISAS = ("avx512", "avx2", "portable")

KINDS = (
    *("load", "store", "conv", "linear", "dense", "copy", "max_pool", "avg_pool"),
    *("add", "multiply", "affine", "activation", "softmax"),
)
ACTIVATIONS = (
    *("clamp", "leaky_relu", "elu", "sigmoid", "tanh", "silu", "hardswish", "hardsigmoid"),
    *("gelu", "gelu_tanh"),
)

VALUE = np.dtype(
    [
        (name, "i8")
        for name in ("offset", "plane", "pitch", "lead", "tail", "channels", "height", "width")
    ]
)
ENTRY = np.dtype([("offset", "i4"), ("value", "f4")])
OPERATION = np.dtype(
    [
        *((name, "i8") for name in ("kind", "items", "parts", "bands")),
        *(("a", VALUE), ("b", VALUE), ("out", VALUE)),
        *(("p", "i8", 8), ("ints", "i8"), ("floats", "i8"), ("entries", "i8")),
        *(("low", "f8"), ("high", "f8")),
    ]
)


class _Plan(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("isa", "lanes", "count", "arena")),
        *((name, ctypes.c_int64) for name in ("input_size", "output_size")),
        *((name, ctypes.c_void_p) for name in ("operations", "ints", "floats", "entries")),
    )


@dataclass(frozen=True)
class Table:
    """A plan as the native core reads it. Sizes are in floats."""

    isa: str
    lanes: int
    """Images in the arena at a time."""
    arena: int
    input_size: int
    output_size: int
    operations: NDArray[np.void]
    ints: NDArray[np.int32]
    floats: Array
    entries: NDArray[np.void]

    @cached_property
    def _plan(self) -> _Plan:
        return _Plan(
            *(ISAS.index(self.isa), self.lanes, len(self.operations), self.arena),
            *(self.input_size, self.output_size, self.operations.ctypes.data),
            *(self.ints.ctypes.data, self.floats.ctypes.data, self.entries.ctypes.data),
        )

    def run(self, x: Array, y: Array, threads: int) -> None:
        """Computes `y` from `x`, contiguous arrays of whole images."""
        plan = ctypes.byref(self._plan)
        if _library().prunus_run(plan, x.ctypes.data, y.ctypes.data, len(x), threads):
            raise MemoryError(f"no memory for {self.arena * 4} bytes of activations per thread")


def available() -> bool:
    """Whether the native core was compiled and can be loaded."""
    return why_not() is None


def why_not() -> str | None:
    """What keeps the native core from being used, and the remedy; None if nothing does."""
    try:
        _library()
    except NativeError as error:
        return str(error)
    return None


class NativeError(RuntimeError):
    """The native core is not there or does not fit."""


def lanes(isa: str) -> int:
    """Floats in a vector of an instruction set; 0 if this machine has not got it."""
    return int(_library().prunus_lanes(ISAS.index(isa)))


def most_vectors(isa: str) -> int:
    """How many vectors of sums stay in registers."""
    return int(_library().prunus_most(ISAS.index(isa)))


def instruction_set(isa: str | None = None) -> str:
    """`isa`, or `$PRUNUS_ISA`, or the best that this machine has."""
    isa = isa or os.environ.get("PRUNUS_ISA") or None
    if isa is None:
        return next(name for name in ISAS if lanes(name))
    if isa not in ISAS:
        raise ValueError(f"isa is {isa!r}; it must be one of {', '.join(ISAS)}")
    if not lanes(isa):
        raise ValueError(f"this machine, or this build of Prunus, has no {isa}")
    return isa


_loaded: ctypes.CDLL | None = None


def _library() -> ctypes.CDLL:
    global _loaded
    if _loaded is None:
        _loaded = _load(Path(os.environ.get("PRUNUS_NATIVE") or LIBRARY))
    return _loaded


def _load(path: Path) -> ctypes.CDLL:
    if not path.exists():
        raise NativeError(
            f"{path} is not there: the native core was not compiled when Prunus was installed; "
            "with a C++ compiler, `python -m prunus_runtime.compile` makes it"
        )
    try:
        library = ctypes.CDLL(str(path))
        size = int(library.prunus_operation_size())
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        library.prunus_run.argtypes = [pointer, pointer, pointer, integer, integer]
        library.prunus_lanes.restype = ctypes.c_int64
        library.prunus_lanes.argtypes = [ctypes.c_int64]
        library.prunus_most.restype = ctypes.c_int64
        library.prunus_most.argtypes = [ctypes.c_int64]
    except (OSError, AttributeError) as error:
        raise NativeError(f"{path} cannot be loaded: {error}") from error
    if size != OPERATION.itemsize:
        raise NativeError(
            f"{path} is of another version of Prunus; `python -m prunus_runtime.compile` renews it"
        )
    return library
