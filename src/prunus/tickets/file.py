"""The file format of tickets: a safetensors file that other tools can open, and no pickle.

Tensors in the file:
- `manifest`: deflated JSON with the manifest, and for each tensor name, dtype, shape and whether it
  is masked;
- `masks`: one bit a weight, all masked tensors one after the other;
- `values.<dtype>`: all values of that dtype one after the other. Of a masked tensor only the kept
  ones are there, unless the ticket is `whole`.
The header's metadata says which format and version this is, and the SHA-256 of all the above.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.torch as safetensors
import torch
from torch import Tensor

from prunus.errors import TicketError
from prunus.files import parse_json

FORMAT = "prunus.ticket"
VERSION = 1
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64,
        torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
    )
}  # fmt: skip
MAX_DIMS = 64  # as many as PyTorch can index
DEEPEST = 10
"""Values inside of values in the manifest; ours go four deep."""
HEADER_LIMIT = 2**16
"""Bytes of the safetensors header, which names a dozen tensors at most."""


@dataclass(frozen=True)
class Content:
    """What a ticket file holds: bool masks and tensors by name, and a manifest of JSON data."""

    masks: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]
    manifest: Mapping[str, Any]
    whole: bool


@dataclass(frozen=True)
class Limits:
    """What a file of so many bytes may unpack to: a small multiple of its size, beyond a floor.

    Without them, kilobytes of deflated JSON could become gigabytes of Python objects.
    """

    file_size: int

    @property
    def text(self) -> int:
        """Bytes of the manifest's JSON. Indices of layers deflate to 1/23."""
        return 2**12 + 32 * self.file_size

    @property
    def values(self) -> int:
        """Numbers, strings, lists and objects in the manifest. Indices deflate to 1/4 byte each."""
        return min(2**9 + 4 * self.file_size, 200_000 + self.file_size // 16)

    @property
    def tensors(self) -> int:
        """Tensors in the index."""
        return 20_000 + self.file_size // 256


def encode(content: Content) -> bytes:
    """The whole file."""
    tensors = _pack(content)
    metadata = {"format": FORMAT, "version": str(VERSION), "sha256": _hash(tensors)}
    data = _in_order(safetensors.save(tensors, metadata), metadata)
    _inflate(tensors["manifest"], Limits(len(data)))  # never write what nobody can read
    return data


def _in_order(data: bytes, metadata: Mapping[str, str]) -> bytes:
    """The file with its metadata in a fixed order; safetensors writes them in any."""
    size = int.from_bytes(data[:8], "little")
    header = {**json.loads(data[8 : 8 + size]), "__metadata__": metadata}
    text = json.dumps(header, separators=(",", ":")).encode().ljust(size)
    return b"".join((data[:8], text, memoryview(data)[8 + size :]))


def content_hash(content: Content) -> str:
    """SHA-256 of everything, as the file states it."""
    return _hash(_pack(content))


def decode(data: bytes) -> Content:
    """Read a ticket file back; everything is checked before anything is used."""
    size = int.from_bytes(data[:8], "little")
    if size > HEADER_LIMIT and size <= len(data):
        raise TicketError(f"the header has {size} bytes, more than any ticket ({HEADER_LIMIT})")
    try:
        tensors = safetensors.load(data)
        header = data[8 : 8 + size]
        metadata = json.loads(header).get("__metadata__") or {}
    except Exception as error:  # the parser's own errors are of many types
        raise TicketError(
            f"not a safetensors file, or one that is damaged or cut short ({error})"
        ) from error
    try:
        _check_metadata(metadata, tensors)
        if not header.rstrip(b" ").endswith(b"}"):  # the only bytes that nothing else covers
            raise TicketError("the padding of the header is damaged")
        return _unpack(tensors, Limits(len(data)))
    except TicketError:
        raise
    except Exception as error:  # content made to break us, with a hash that fits it
        raise TicketError(f"the content does not make sense ({error})") from error


def _pack(content: Content) -> dict[str, Tensor]:
    index: list[list[Any]] = []
    bits: list[Tensor] = []
    values: dict[str, list[Tensor]] = {}
    for name, tensor in content.weights.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise TicketError(f"{name} is {dtype}, which a ticket cannot hold")
        flat, mask = tensor.flatten(), content.masks.get(name)
        index.append([name, dtype, list(tensor.shape), mask is not None])
        if mask is not None:
            bits.append(mask.flatten())
            flat = flat if content.whole else flat[mask.flatten()]
        values.setdefault(dtype, []).append(flat)
    manifest = {**content.manifest, "whole": content.whole, "tensors": index}
    tensors = {"manifest": _deflate(manifest), "masks": _pack_bits(bits)}
    return tensors | {f"values.{dtype}": torch.cat(parts) for dtype, parts in values.items()}


def _check_metadata(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> None:
    if metadata.get("format") != FORMAT:
        raise TicketError("a safetensors file, but not a Prunus ticket")
    version = metadata.get("version", "")
    if not re.fullmatch("[1-9][0-9]{0,8}", version):
        raise TicketError(f"the format version {version[:20]!r} is not a number from 1 up")
    if int(version) > VERSION:
        raise TicketError(
            f"written in ticket format {version}; this Prunus reads up to {VERSION}: upgrade Prunus"
        )
    if _hash(tensors) != metadata.get("sha256"):
        raise TicketError("the content hash does not match: the file was damaged or altered")


def _unpack(tensors: dict[str, Tensor], limits: Limits) -> Content:
    manifest = _inflate(_take(tensors, "manifest", torch.uint8), limits)
    index, whole = manifest.pop("tensors", None), manifest.pop("whole", None)
    if not isinstance(index, list) or not isinstance(whole, bool):
        raise TicketError("the manifest has no index of tensors, or does not say whether whole")
    for entry in index:
        _check_entry(entry)
    masked_sizes = [math.prod(shape) for _, _, shape, masked in index if masked]
    bits = _unpack_bits(_take(tensors, "masks", torch.uint8), sum(masked_sizes))
    masks: dict[str, Tensor] = {}
    weights: dict[str, Tensor] = {}
    position: dict[str, int] = {}
    offset = 0
    for name, dtype, shape, masked in index:
        if name in weights:
            raise TicketError(f"{name!r} is in the index twice")
        size = math.prod(shape)
        keep = bits[offset : offset + size] if masked else None
        stored = size if keep is None or whole else int(keep.sum())
        values = tensors.get(f"values.{dtype}")
        start = position.get(dtype, 0)
        if (
            values is None
            or values.dtype != DTYPES[dtype]
            or values.dim() != 1
            or start + stored > values.numel()
        ):
            raise TicketError(f"the values of {name} are missing")
        part = values[start : start + stored]
        position[dtype] = start + stored
        if keep is not None:
            offset += size
            masks[name] = keep.view(shape)
            if not whole:
                part = torch.zeros(size, dtype=part.dtype).masked_scatter_(keep, part)
        weights[name] = part.view(shape)
    expected = {f"values.{dtype}": count for dtype, count in position.items()}
    if {name: tensor.numel() for name, tensor in tensors.items()} != expected:
        raise TicketError("the file has tensors or values that its index does not name")
    return Content(masks, weights, manifest, whole)


def _check_entry(entry: Any) -> None:
    match entry:
        case [str(name), str(dtype), list(shape), bool()]:
            if dtype not in DTYPES:
                raise TicketError(f"{name!r} has the unknown type {dtype!r} in the index")
            if len(shape) > MAX_DIMS or not all(type(n) is int and n >= 0 for n in shape):
                raise TicketError(f"{name!r} has the impossible shape {shape} in the index")
        case _:
            raise TicketError(f"the index has the entry {entry!r}, which is no tensor")


def _take(tensors: dict[str, Tensor], name: str, dtype: torch.dtype) -> Tensor:
    tensor = tensors.pop(name, None)
    if tensor is None or tensor.dtype != dtype or tensor.dim() != 1:
        raise TicketError(f"the tensor {name!r} is missing or of the wrong type")
    return tensor


def _hash(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _deflate(manifest: Mapping[str, Any]) -> Tensor:
    try:
        text = json.dumps(manifest, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TicketError(f"the manifest must be plain JSON data: {error}") from error
    return torch.from_numpy(np.frombuffer(zlib.compress(text.encode(), 9), np.uint8).copy())


def _inflate(data: Tensor, limits: Limits) -> dict[str, Any]:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(data.numpy().tobytes(), limits.text)
    if unpacker.unconsumed_tail or unpacker.unused_data or not unpacker.eof:
        raise TicketError("the manifest is too large, incomplete or followed by something else")
    # Every value but the first follows one of these (or they stand in a name, which is rare).
    if sum(map(text.count, (b",", b"[", b"{", b":"))) > limits.values:
        raise TicketError(f"the manifest has more than the {limits.values} values of such a file")
    manifest = parse_json(text.decode(), DEEPEST)
    if not isinstance(manifest, dict):
        raise TicketError("the manifest is not a JSON object")
    index = manifest.get("tensors")
    if isinstance(index, list) and len(index) > limits.tensors:
        raise TicketError(f"the index has {len(index)} tensors; {limits.tensors} fit such a file")
    try:
        json.dumps(manifest, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise TicketError(f"the manifest has text that is not Unicode ({error.reason})") from error
    return manifest


def _pack_bits(bits: list[Tensor]) -> Tensor:
    flat = torch.cat(bits) if bits else torch.zeros(0, dtype=torch.bool)
    return torch.from_numpy(np.packbits(flat.numpy()))


def _unpack_bits(data: Tensor, count: int) -> Tensor:
    if data.numel() != (count + 7) // 8:
        raise TicketError(f"the masks have {data.numel()} bytes, not the {count} bits expected")
    if count % 8 and int(data[-1]) & (0xFF >> count % 8):
        raise TicketError("the masks have bits beyond their end")
    return torch.from_numpy(np.unpackbits(data.numpy(), count=count).view(np.bool_))
