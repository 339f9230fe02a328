"""One file for one deployed network, `*.prunus`. docs/deploy-file.md describes its bytes.

Reading trusts nothing: a file that was cut off, changed or made to do harm gives a
`RuntimeFileError`, and sizes are checked before memory is taken. Nothing in a file is code.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prunus_runtime import storage
from prunus_runtime.atomic import read_file, write_atomically
from prunus_runtime.checks import shown
from prunus_runtime.errors import GraphError, RuntimeFileError
from prunus_runtime.graph import Graph, described, infer
from prunus_runtime.images import Images
from prunus_runtime.limits import Limits
from prunus_runtime.operation import Array, Operation
from prunus_runtime.storage import STORES, Stored
from prunus_runtime.tokens import Tokens

MAGIC, VERSION = b"PRUNUS", 1
PREFIX = struct.Struct("<6sH32s")
"""Magic, version, SHA-256 of all that follows."""
MAX_HEADER, MAX_FILE, MAX_TOTAL = 2**22, 2**32, 2**29
"""Bytes of the header, bytes of the file, elements of all tensors (two GiB)."""
DEFAULT = Limits()
"""Of files from anywhere."""


def save(graph: Graph, path: str | os.PathLike[str], store: str = "fp32") -> Path:
    """Write `graph` to `path`, all of it or nothing.

    `store` is how the weights of convolutions and linear layers are stored: `fp32` is exact, `fp16`
    and `int8` round. Everything else is always exact.
    """
    target = Path(path)
    with _naming(f"{target}: cannot be written:"):
        content = encode(graph, store)
    return write_atomically(target, content)


def load(path: str | os.PathLike[str], limits: Limits | None = DEFAULT) -> Graph:
    """The network that `save` wrote to `path`, its tensors whole and float32 again.

    A network that takes more than `limits`, and more than a multiple of the file's own size, is
    refused before memory is taken. None stands for no limits.
    """
    content = read_file(path, MAX_FILE + 1)
    with _naming(f"{path}:"):
        return decode(content, limits)


def encode(graph: Graph, store: str = "fp32") -> bytes:
    """The content of a file; the same graph always gives the same bytes."""
    if store not in STORES:
        raise RuntimeFileError(f"store is {shown(store)}, not one of {', '.join(STORES)}")
    replace(graph).check()  # anew, since its arrays may have changed
    parts: list[bytes] = []
    packed = {o.output for o in graph.operations if o.kind == "quantize"}
    operations = [
        # Half precision has not the integers that these layers multiply.
        _encode_operation(
            o, position, "int8" if store == "fp16" and packed & {*o.inputs} else store, parts
        )
        for position, o in enumerate(graph.operations)
    ]
    content: dict[str, Any] = {
        "input": graph.input,
        "input_shape": graph.input_shape,
        "operations": operations,
        "output": graph.output,
    }
    if graph.images is not None:
        content["images"] = graph.images.described()
    if graph.tokens is not None:
        content["tokens"] = vars(graph.tokens)
    header = json.dumps(content, separators=(",", ":")).encode()
    # Weights have no repetitions to find: with only runs it is faster, and smaller.
    body = _gzip([len(header).to_bytes(4, "little"), header], zlib.Z_DEFAULT_STRATEGY)
    body += _gzip(parts, zlib.Z_RLE)
    return PREFIX.pack(MAGIC, VERSION, hashlib.sha256(body).digest()) + body


def decode(content: bytes, limits: Limits | None = DEFAULT) -> Graph:
    """The network in the `content` of a file, if it is within `limits`."""
    if len(content) < PREFIX.size or not content.startswith(MAGIC):
        raise RuntimeFileError("this is not a file of a deployed network, or its start is lost")
    if len(content) > MAX_FILE:
        raise RuntimeFileError(f"the file is longer than {MAX_FILE} bytes")
    _, version, digest = PREFIX.unpack_from(content)
    if version != VERSION:
        raise RuntimeFileError(f"the file has format {version}; this version reads {VERSION}")
    body = memoryview(content)[PREFIX.size :]
    if hashlib.sha256(body).digest() != digest:
        raise RuntimeFileError("the file was damaged or cut off; its checksum does not fit")
    try:
        return _decode_body(_Reader(body), limits and limits.of_file(len(content)))
    except GraphError as error:
        raise RuntimeFileError(str(error)) from None


def _decode_body(reader: _Reader, limits: Limits | None) -> Graph:
    size = int.from_bytes(reader.read(4), "little")
    if size > MAX_HEADER:
        raise RuntimeFileError(f"the header would have {size} bytes; the limit is {MAX_HEADER}")
    graph, tensors = _decode_header(reader.read(size), limits)
    operations = []
    for position, (operation, stored) in enumerate(zip(graph.operations, tensors, strict=True)):
        decoded = {}
        for name, one in stored.items():
            with _naming(f"{described(operation, position)}: `{name}`"):
                decoded[name] = storage.decode(one, reader.read)
        operations.append(replace(operation, tensors=decoded))
    reader.finish()
    return replace(graph, operations=tuple(operations)).check()


@contextmanager
def _naming(what: str) -> Iterator[None]:
    try:
        yield
    except (GraphError, RuntimeFileError) as error:
        raise RuntimeFileError(f"{what} {error}") from None


class _Reader:
    """Unpacks no more than is asked for, whatever the file says."""

    def __init__(self, body: memoryview) -> None:
        self._file = gzip.GzipFile(fileobj=io.BytesIO(body))

    def read(self, size: int) -> bytes:
        try:
            content = self._file.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise RuntimeFileError(f"cannot be unpacked: {error}") from None
        if len(content) < size:
            raise RuntimeFileError("ends too early")
        return content

    def finish(self) -> None:
        try:
            rest = self._file.read(1)
        except (OSError, EOFError, zlib.error) as error:
            raise RuntimeFileError(f"the end cannot be unpacked: {error}") from None
        if rest:
            raise RuntimeFileError("the file holds more than its header says")


def _gzip(parts: list[bytes], strategy: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31, 9, strategy)
    return b"".join([*map(packer.compress, parts), packer.flush()])


def _encode_operation(
    operation: Operation, position: int, store: str, parts: list[bytes]
) -> dict[str, Any]:
    tensors = {}
    for name, tensor in operation.tensors.items():
        with _naming(f"{described(operation, position)}: `{name}`"):
            stored, content = storage.encode(tensor, store if name == "weight" else "fp32")
        tensors[name] = stored.described()
        parts += content
    return {
        "kind": operation.kind,
        "inputs": operation.inputs,
        "output": operation.output,
        "attributes": dict(operation.attributes),
        "layer": operation.layer,
        "tensors": tensors,
    }


def _decode_header(content: bytes, limits: Limits | None) -> tuple[Graph, list[dict[str, Stored]]]:
    """A graph whose tensors have shapes but take no memory, checked; and how they are stored."""
    try:
        header = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RuntimeFileError(f"the header is not JSON: {shown(str(error))}") from None
    optional = header if isinstance(header, dict) else {}
    images, tokens = optional.pop("images", None), optional.pop("tokens", None)
    names, shape, entries, output = _fields(
        header, "the header", input=str, input_shape=list, operations=list, output=str
    )
    decoded = [_decode_operation(entry, position) for position, entry in enumerate(entries)]
    operations = tuple(operation for operation, _ in decoded)
    tensors = [stored for _, stored in decoded]
    total = sum(math.prod(one.shape) for stored in tensors for one in stored.values())
    if total > MAX_TOTAL:
        raise RuntimeFileError(f"all tensors have {total} elements; the limit is {MAX_TOTAL}")
    known = None if images is None else Images.parse(images)
    graph = Graph(names, tuple(shape), operations, output, known, _decode_tokens(tokens))
    shapes = infer(graph)
    if limits is not None:
        limits.check(graph, shapes, sum(one.kept for stored in tensors for one in stored.values()))
    return graph, tensors


def _decode_tokens(entry: object) -> Tokens | None:
    return (
        None if entry is None else Tokens(*_fields(entry, "`tokens`", vocabulary=int, shorter=bool))
    )


def _decode_operation(entry: object, position: int) -> tuple[Operation, dict[str, Stored]]:
    what = f"operation {position}"
    kind, inputs, output, attributes, layer, entries = _fields(
        entry, what, kind=str, inputs=list, output=str, attributes=dict, layer=str, tensors=dict
    )
    stored = {}
    for name, one in entries.items():
        with _naming(f"{what}: tensor {shown(name)}"):
            stored[name] = Stored.parse(one)
    tensors: dict[str, Array] = {
        name: np.broadcast_to(np.float32(0), one.shape) for name, one in stored.items()
    }
    return Operation(kind, tuple(inputs), output, attributes, tensors, layer), stored


def _fields(entry: object, what: str, **kinds: type) -> Iterator[Any]:
    if not isinstance(entry, dict) or set(entry) != set(kinds):
        raise RuntimeFileError(f"{what} should have {', '.join(kinds)}, but is {shown(entry)}")
    for name, kind in kinds.items():
        if not isinstance(entry[name], kind):
            raise RuntimeFileError(f"{what}: `{name}` is {shown(entry[name])}")
    return (entry[name] for name in kinds)
