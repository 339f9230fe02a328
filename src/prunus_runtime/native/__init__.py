"""The native core through ctypes: programs as numpy arrays, and `Program.run`."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prunus_runtime.compile import LIBRARY
from prunus_runtime.native import interface

ISAS = ("avx512", "avx2", "portable")
ANY = 2**40
"""More than the length of any sequence."""


def _numpy_type(declared: Any) -> np.dtype[Any]:
    """The numpy type of a class of the interface."""
    return np.dtype([(name, _TYPES[kind]) for name, kind in declared.__annotations__.items()])


_TYPES: dict[Any, Any] = {
    int: "i8",
    float: "f8",
    interface.Int32: "i4",
    interface.Float32: "f4",
    tuple[int, ...]: ("i8", interface.MOST_PARAMETERS),
}
_TYPES[interface.Place] = _numpy_type(interface.Place)
ENTRY = _numpy_type(interface.Entry)
INSTRUCTION = _numpy_type(interface.Instruction)


def _fields(declared: dict[str, str]) -> tuple[tuple[str, Any], ...]:
    types = {"int64_t": ctypes.c_int64, "float": ctypes.c_float}
    return tuple((name, types.get(kind, ctypes.c_void_p)) for name, kind in declared.items())


class _Program(ctypes.Structure):
    _fields_ = _fields(interface.PROGRAM)


class Gate(ctypes.Structure):
    """What a pass over a gate reads and writes: addresses of float32 arrays, and numbers."""

    _fields_ = _fields(interface.GATE)


@dataclass(frozen=True)
class Program:
    """What the native core runs for chunks of `lanes` images. `arena` is floats; `kept` are arrays
    whose addresses are in the instructions."""

    isa: str
    lanes: int
    arena: int
    instructions: NDArray[np.void]
    ints: NDArray[np.int32]
    floats: NDArray[np.float32]
    entries: NDArray[np.void]
    kept: tuple[NDArray[np.float32], ...] = ()

    @cached_property
    def _as_struct(self) -> _Program:
        content = {"isa": ISAS.index(self.isa), "count": len(self.instructions)}
        for name in interface.PROGRAM.keys() - content:
            value = getattr(self, name)
            content[name] = value.ctypes.data if isinstance(value, np.ndarray) else value
        return _Program(**content)

    def run(
        self, x: NDArray[np.float32], y: NDArray[np.float32], threads: int, length: int = ANY
    ) -> None:
        """Computes `y` from `x`, contiguous arrays of whole images, or of sequences of `length`."""
        arrays = (x.ctypes.data, y.ctypes.data, len(x), x[0].size, y[0].size)
        if _library().prunus_run(ctypes.byref(self._as_struct), *arrays, length, threads):
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
    """The native core is missing, or was compiled for another version."""


def lanes(isa: str) -> int:
    """Floats in a vector of an instruction set; 0 if this machine does not support it."""
    return int(_library().prunus_lanes(ISAS.index(isa)))


def most_vectors(isa: str) -> int:
    """How many vectors of sums stay in registers."""
    return int(_library().prunus_most(ISAS.index(isa)))


def packs(isa: str) -> bool:
    """Whether an instruction set multiplies packed inputs: four channels of eight bits at once."""
    return isa == "avx512" and bool(_library().prunus_vnni())


def instruction_set(isa: str | None = None) -> str:
    """`isa`, or `$PRUNUS_ISA`, or the best one that this machine supports."""
    isa = isa or os.environ.get("PRUNUS_ISA") or None
    if isa is None:
        return next(name for name in ISAS if lanes(name))
    if isa not in ISAS:
        raise ValueError(f"isa is {isa!r}; it must be one of {', '.join(ISAS)}")
    if not lanes(isa):
        raise ValueError(f"this machine, or this build of Prunus, has no {isa}")
    return isa


def gate_passes() -> Any:
    """The function of gates.cpp for the best instruction set: `(gate, pass, threads, parallel)`."""
    function = getattr(_library(), f"prunus_gates_{instruction_set()}")
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.POINTER(Gate), ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return function


_loaded: ctypes.CDLL | None = None


def _library() -> ctypes.CDLL:
    global _loaded
    if _loaded is None:
        _loaded = _load(Path(os.environ.get("PRUNUS_NATIVE") or LIBRARY))
    return _loaded


def _load(path: Path) -> ctypes.CDLL:
    if not path.exists():
        raise NativeError(
            f"{path} does not exist: the native core was not compiled when Prunus was installed; "
            "with a C++ compiler, `python -m prunus_runtime.compile` makes it"
        )
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeError(f"{path} cannot be loaded: {error}") from error
    if _abi(library) != interface.ABI:
        raise NativeError(
            f"{path} was compiled for another version of Prunus; "
            "`python -m prunus_runtime.compile` compiles it again"
        )
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    library.prunus_run.argtypes = [pointer, pointer, pointer, *[integer] * 5]
    library.prunus_lanes.restype = library.prunus_most.restype = integer
    library.prunus_vnni.restype = integer
    library.prunus_lanes.argtypes = library.prunus_most.argtypes = [integer]
    return library


def _abi(library: ctypes.CDLL) -> str | None:
    """The hash of the interface that a library was compiled from; None if it has none."""
    try:
        library.prunus_abi.restype = ctypes.c_char_p
        return bytes(library.prunus_abi()).decode()
    except AttributeError:
        return None
