"""The boundary between the planner and the native core, declared once for both sides.

From the classes of this file come the numpy types of `native/__init__.py` and the C++ header
`interface.h`, which `compile.py` writes. `ABI` is a hash of that header: a library that was
compiled from another declaration is refused. This file imports nothing of the package, because the
build runs it where nothing is installed.

The planner decides everything: where each value lies, which tiles a layer is cut into, which
weights it reads in which order. The core runs the instructions and checks nothing, so a program
must only ever come from the planner, made of a graph that was validated.

An arena holds `lanes` images at a time, lane after lane at each position. With as many as a vector
has elements, a vector is one position of all images; with fewer (1, 2, 4, ...) it runs along the
positions of a plane, several at a time. Offsets and distances count floats.
"""

import hashlib
from enum import IntEnum, auto
from typing import Annotated, Any, NamedTuple, get_args

Int32 = Annotated[int, "int32_t"]
Float32 = Annotated[float, "float"]


class Place(NamedTuple):
    """Where a value lies: element (c, y, x) is at offset + c*plane + y*pitch + x*lanes.

    Around the elements are zeros, the padding for what reads the value: `lead` before the first
    plane, pitch - width*lanes behind each row (they serve the next row as well), `tail` behind each
    plane (they serve the next plane). Whoever writes a value writes these zeros.
    """

    offset: int
    plane: int
    pitch: int
    lead: int
    tail: int
    channels: int
    height: int
    width: int

    @property
    def size(self) -> int:
        """Floats from `lead` on."""
        return self.lead + self.channels * self.plane

    def channels_from(self, start: int, count: int, step: int = 1) -> "Place":
        """A view of some of the channels."""
        return self._replace(
            offset=self.offset + start * self.plane,
            plane=self.plane * step,
            channels=count,
            lead=self.lead if start == 0 else 0,
        )

    def as_planes(self, channels: int, height: int, width: int, lanes: int) -> "Place":
        """A view of a compact vector of features as planes, one right after the other."""
        plane, pitch = height * width * lanes, width * lanes
        return Place(self.offset, plane, pitch, 0, 0, channels, height, width)


NOWHERE = Place(-1, 0, 0, 0, 0, 0, 0, 0)


class Entry(NamedTuple):
    """One kept weight: where its input is, seen from the first output position, and its value."""

    offset: Int32
    value: Float32


class Tile(NamedTuple):
    """A part of a layer's output: rows x columns vectors, and offsets of its first position."""

    rows: Int32
    columns: Int32
    input: Int32
    output: Int32
    residual: Int32
    plane: Int32


STRIP = 4
"""Vectors of a row that NORM and SOFTMAX take at a time."""
QUERIES = 2
"""Vectors of queries that ATTENTION takes at a time."""
BUNDLED = 3
"""Vectors of a tile of CONV that leave registers for the sums of a whole bundle of filters."""
FILTER_VECTORS = 2
"""Vectors of filters that share a list of CONV, where these are not of positions."""


class Kernel(IntEnum):
    """What the core can do. `kernels.cpp` has a function of each name, in lower case.

    CONV, COPY, the poolings, EMBEDDING and ATTENTION have parameters, see below; others at most an
    `option` of the instruction. AFFINE and NORM have floats: scale, then shift; ADD_PLANE: the
    plane of each channel. Of NORM and SOFTMAX an item is a strip of a row, of TRANSPOSE some
    channels. LINEAR and MATRIX are for one image, and an item is a block of filters: ints as for
    CONV, without bundles and tiles; floats: bias, for MATRIX then all weights, row by row, instead
    of entries.
    """

    LOAD_INPUT = 0
    STORE_OUTPUT = auto()
    CONV = auto()
    LINEAR = auto()
    MATRIX = auto()
    COPY = auto()
    MAX_POOL = auto()
    AVG_POOL = auto()
    ADD = auto()
    MULTIPLY = auto()
    AFFINE = auto()
    ACTIVATION = auto()
    ADD_PLANE = auto()
    SOFTMAX = auto()
    NORM = auto()
    ATTENTION = auto()
    EMBEDDING = auto()
    TRANSPOSE = auto()
    MEAN = auto()
    QUANTIZE = auto()


class Activation(IntEnum):
    """Functions of the kernel ACTIVATION."""

    CLAMP = 0
    LEAKY_RELU = auto()
    ELU = auto()
    SIGMOID = auto()
    TANH = auto()
    SILU = auto()
    HARDSWISH = auto()
    HARDSIGMOID = auto()
    GELU = auto()
    GELU_TANH = auto()


class ConvParameters(NamedTuple):
    """CONV. An item is block of lists * tiles + tile.

    A list is of one filter, or of a bundle of them. ints: start of each list (lists + 1), first
    list of each block (blocks + 1), tiles. floats: bias, then planes. `b` is added if it is
    anywhere; then low and high clamp.
    """

    bundle: int = 1  # filters of a list; those of FILTER_VECTORS, and vectors are of filters
    offsets: int = -1  # of a bundle: where in ints the offsets of its inputs are,
    weights: int = -1  # and where in floats what each of its filters has there
    tiles: int = 0
    blocks: int = 0
    row: int = 0  # input distance of two rows of a tile
    column: int = 0  # and of two columns
    mask: int = -1  # where in ints the mask of a plane is; -1 if there is none
    has_planes: int = 0
    plane: int = 0  # floats in a plane
    plane_row: int = 0  # distance of its rows
    scales: int = -1  # of packed inputs: where in floats what a product counts in each filter is,
    corrections: int = -1  # and where in ints what its sum begins with


class CopyParameters(NamedTuple):
    """COPY. output(y, x) = input(top + y*row_step, left + x*column_step), zero outside of it."""

    top: int = 0
    row_step: int = 1
    left: int = 0
    column_step: int = 1


class PoolParameters(NamedTuple):
    """MAX_POOL, AVG_POOL.

    ints: first row and past last row of each window (2 * height), the same of columns. floats of
    AVG_POOL: a factor for each row and for each column.
    """

    row_step: int  # of rows within a window
    column_step: int
    whole_begin: int  # first and past last output column with a whole window
    whole_end: int
    stride: int  # of those
    columns: int  # of those


class AttentionParameters(NamedTuple):
    """ATTENTION. a: queries, b: keys. An item is head * tiles + tile: QUERIES vectors of a row."""

    heads: int
    tiles: int
    causal: int  # whether a query sees only keys at its own position and before
    value: int  # where the values begin,
    value_plane: int  # and how far apart their channels are
    mask: int  # where one number for each key begins that is added to scores; -1 if there is none


class EmbeddingParameters(NamedTuple):
    """EMBEDDING. An item is a vector of positions."""

    table: int  # the address of its first row
    rows: int


Parameters = (
    ConvParameters | CopyParameters | PoolParameters | AttentionParameters | EmbeddingParameters
)
PARAMETERS: dict[str, type[Parameters]] = {
    kind.__name__.removesuffix("Parameters").lower(): kind for kind in get_args(Parameters)
}
"""Members of the union in an instruction."""
MOST_PARAMETERS = max(len(kind._fields) for kind in PARAMETERS.values())


class Instruction(NamedTuple):
    """`items` pieces of work in any order and by any thread, all of them before the next one.

    Threads that share a chunk take `parts`, each of items that follow each other: neighbours in the
    plane where that is large, so that a thread finds what it reads in its own cache. Unless its
    parameters say otherwise, an item is one of `bands` of the rows of a channel: item = band *
    channels + channel. `ints`, `floats` and `entries` are where its constants begin.

    `option` is the function of ACTIVATION, for ADD and MULTIPLY whether b has one value for each
    channel, for SOFTMAX whether to take its logarithm, for NORM whether to subtract the mean, for
    LOAD_INPUT and STORE_OUTPUT whether channels are the positions of a sequence, for QUANTIZE
    whether each channel of the output is four of the input, packed into bytes. `number` is the
    slope of LEAKY_RELU and ELU, what NORM adds to the variance, the factor of ATTENTION's scores,
    and the step of QUANTIZE. CLAMP uses `low` and `high`, QUANTIZE too: in steps.
    """

    kernel: int
    items: int
    parts: int
    bands: int
    a: Place
    b: Place
    out: Place
    parameters: tuple[int, ...]
    option: int
    ints: int
    floats: int
    entries: int
    low: float
    high: float
    number: float


PROGRAM = {
    **dict.fromkeys(("isa", "lanes", "count", "arena"), "int64_t"),
    "instructions": "const Instruction*",
    "ints": "const int32_t*",
    "floats": "const float*",
    "entries": "const Entry*",
}
"""A program: its instructions and their constants."""
GATE = {  # what a pass of gates.cpp reads and writes, for `count` numbers
    **dict.fromkeys(("score", "gated", "grad_weight", "grad_score"), "float*"),
    **dict.fromkeys(("weight", "gradient"), "const float*"),
    **dict.fromkeys(("beta", "scale", "closed", "grad_l1"), "float"),
    "count": "int64_t",
}

_UNION = "".join(f"{kind.__name__} {name}; " for name, kind in PARAMETERS.items())
_C_TYPES: dict[Any, str] = {
    int: "int64_t",
    float: "double",
    Int32: "int32_t",
    Float32: "float",
    Place: "Place",
    tuple[int, ...]: f"union {{ {_UNION}}}",
}


def header() -> str:
    """The content of `interface.h`."""
    return f'{_DECLARATIONS}\n#define PRUNUS_ABI "{ABI}"\n'


def _declarations() -> str:
    kernels = [kernel.name for kernel in Kernel]
    functions = ", ".join(activation.name for activation in Activation)
    structs = [
        _struct(kind.__name__, {name: _C_TYPES[t] for name, t in kind.__annotations__.items()})
        for kind in (Place, Entry, Tile, *PARAMETERS.values(), Instruction)
    ]
    structs += [_struct("Program", PROGRAM), _struct("Gate", GATE)]
    lines = [
        "// Made from interface.py.",
        "#pragma once",
        "#include <stdint.h>",
        f"enum Kernel : int64_t {{ {', '.join(kernels)}, KERNEL_COUNT }};",
        f"enum Activation : int64_t {{ {functions} }};",
        f"enum {{ STRIP = {STRIP}, QUERIES = {QUERIES}, BUNDLED = {BUNDLED} }};",
        f"enum {{ FILTER_VECTORS = {FILTER_VECTORS} }};",
        f"#define FOR_EACH_KERNEL(DO) {' '.join(f'DO({name.lower()})' for name in kernels)}",
    ]
    return "\n".join([*lines, *structs])


def _struct(name: str, fields: dict[str, str]) -> str:
    lines = "".join(f"  {c_type} {field};\n" for field, c_type in fields.items())
    return f"struct {name} {{\n{lines}}};"


_DECLARATIONS = _declarations()
ABI = hashlib.sha256(_DECLARATIONS.encode()).hexdigest()[:16]
