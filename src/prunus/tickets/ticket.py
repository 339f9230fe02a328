"""The ticket: a mask, the early weights `w^(k)` it re-trains from, and where it came from."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import safetensors
import torch
from torch import Tensor, nn

from prunus.errors import TicketError
from prunus.files import read_file, write_atomically
from prunus.gates import check_attachable, plain_tensors
from prunus.masks import Mask
from prunus.tables import percent
from prunus.tickets.file import Content, content_hash, decode, encode
from prunus.version import __version__


def _versions() -> dict[str, str]:
    return {
        "prunus": __version__,
        "torch": torch.__version__,
        "safetensors": safetensors.__version__,
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class Manifest:
    """Where a ticket came from. Everything is plain JSON data, copied; all of it is optional."""

    task: str = ""
    method: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    rewind_point: int | None = None
    """Step `k` of the stored weights `w^(k)`; None: the weights are those at the end."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=_versions)
    created: str = ""
    """A time, if you want one. Runs leave it out, so that equal runs write equal files."""

    def __post_init__(self) -> None:
        # What is not refused here can be written to a file and read back.
        for name, types in _JSON_TYPES.items():
            value = getattr(self, name)
            if isinstance(value, Mapping):
                object.__setattr__(self, name, value := _json_copy(name, value))
            if not isinstance(value, types) or isinstance(value, bool):
                raise TicketError(
                    f"the manifest field {name!r} has the wrong type {type(value).__name__}"
                )
            if name in _ITEM_TYPES:
                _check_items(name, getattr(self, name))

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Manifest:
        """The manifest of a file, every field checked."""
        unknown = next((name for name in data if name not in _JSON_TYPES), None)
        if unknown is not None:
            raise TicketError(f"the manifest field {unknown!r} is unknown")
        return cls(**data)


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "task": (str,),
    "method": (str,),
    "settings": (dict,),
    "seed": (int, type(None)),
    "rewind_point": (int, type(None)),
    "metrics": (dict,),
    "versions": (dict,),
    "created": (str,),
}


_ITEM_TYPES: dict[str, tuple[type, ...]] = {"metrics": (int, float), "versions": (str,)}


def _check_items(name: str, items: Mapping[str, Any]) -> None:
    for key, value in items.items():
        if not isinstance(value, _ITEM_TYPES[name]) or isinstance(value, bool):
            kind = " or ".join(t.__name__ for t in _ITEM_TYPES[name])
            raise TicketError(f"the manifest field {name!r} has {key!r}: {value!r:.60}, not {kind}")


def _json_copy(name: str, value: Mapping[str, Any]) -> Any:
    try:
        return json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TicketError(f"the manifest field {name!r} is not plain JSON data: {error}") from error


class Ticket:
    """Everything needed to re-train a subnetwork: mask, weights and buffers, and a manifest.

    `weights` has every parameter and persistent buffer of the plain model by name. Weights that the
    mask removes are dropped (zero) unless `whole`, because a ticket re-trains from the kept ones.
    Like the mask, a ticket is a value: it copies what it is given and compares by content. Its
    tensors are for reading.
    """

    def __init__(
        self,
        mask: Mask,
        weights: Mapping[str, Tensor],
        manifest: Manifest | None = None,
        *,
        whole: bool = False,
    ) -> None:
        copies = {n: t.detach().to("cpu", copy=True).contiguous() for n, t in weights.items()}
        self._take(mask, copies, manifest or Manifest(), whole)

    def _take(
        self, mask: Mask, weights: dict[str, Tensor], manifest: Manifest, whole: bool
    ) -> None:
        """Become the ticket of these parts, without copying the weights."""
        for name, kept in mask.items():
            if name not in weights:
                raise TicketError(f"the mask covers {name}, but there is no weight of that name")
            if kept.shape != weights[name].shape:
                raise TicketError(
                    f"{name} is {tuple(kept.shape)} in the mask but "
                    f"{tuple(weights[name].shape)} in the weights"
                )
            if not whole:
                weights[name].masked_fill_(kept.logical_not_(), 0)
        for name, tensor in weights.items():
            if not _can_train(tensor, infinite=name not in mask):
                raise TicketError(f"{name} holds NaN or infinite values: this ticket cannot train")
        self.mask, self.manifest, self.whole = mask, manifest, whole
        self.weights: Mapping[str, Tensor] = MappingProxyType(weights)

    @property
    def network_density(self) -> float:
        """The kept part of all numbers that it holds: of the whole network, buffers included."""
        total = sum(tensor.numel() for tensor in self.weights.values())
        return 1 - (self.mask.total - self.mask.kept) / max(1, total)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of all tensors and the manifest, as stored in the file."""
        return content_hash(self._content())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ticket) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def __reduce__(self) -> tuple[Any, ...]:  # a mappingproxy can be neither copied nor sent
        return _ticket, (self.mask, dict(self.weights), self.manifest, self.whole)

    def __repr__(self) -> str:
        origin = self.manifest.method or "a mask"
        return f"<Ticket by {origin}, density {percent(self.mask.density)}>"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one safetensors file, atomically."""
        return write_atomically(path, encode(self._content()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Ticket:
        """Read and validate a ticket file; anything wrong with it is a `TicketError`."""
        try:
            data = read_file(path)
        except IsADirectoryError as error:
            inside = sorted(Path(path).glob("tickets/*.safetensors"), key=os.path.getmtime)
            newest = f", such as {inside[-1]}" if inside else ""
            raise TicketError(
                f"cannot read the ticket {path}: it is a directory, and a ticket is a file{newest}"
            ) from error
        except OSError as error:
            raise TicketError(f"cannot read the ticket {path}: {error.strerror}") from error
        try:
            content = decode(data)
            ticket = cls.__new__(cls)
            weights = {name: tensor.contiguous() for name, tensor in content.weights.items()}
            manifest = Manifest.parse(content.manifest)
            ticket._take(Mask(content.masks), weights, manifest, content.whole)
            return ticket
        except TicketError as error:
            raise TicketError(f"{path}: {error}") from error

    def push_to_hub(
        self,
        repo_id: str | os.PathLike[str],
        *,
        licence: str | None = None,
        base_model: str | None = None,
        private: bool = False,
        token: str | None = None,
    ) -> str:
        """Share the ticket on the Hugging Face Hub, with a model card unless there is one.

        A path (or the name of a folder that exists) is a folder, and needs neither network nor
        `huggingface_hub`. Returns where the ticket is.
        """
        from prunus.tickets import hub

        card = hub.make_card(self, repo_id, licence=licence, base_model=base_model)
        return hub.push(self, repo_id, card, private=private, token=token)

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str | os.PathLike[str],
        *,
        revision: str | None = None,
        token: str | None = None,
    ) -> Ticket:
        """Load what `push_to_hub` has shared; like `load`, it runs nothing that it downloads."""
        from prunus.tickets import hub

        return cls.load(hub.pull(repo_id, revision=revision, token=token))

    def apply(self, model: nn.Module) -> nn.Module:
        """Load the weights into `model` and put the mask on it, in place.

        Then train as usual: removed weights stay exactly zero with any optimiser. A model that does
        not fit is refused before anything changes.
        """
        check_attachable(model)
        tensors = plain_tensors(model)
        self._check_fits(tensors)
        self.mask.covered(model)
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(self.weights[name])
        return self.mask.apply(model)

    def _check_fits(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            shape = tuple(tensor.shape)
            if name not in self.weights:
                raise TicketError(
                    f"this ticket is for another model: it has no {name} (the model has {shape})"
                )
            if shape != tuple(self.weights[name].shape):
                raise TicketError(
                    f"this ticket is for another model: {name} is "
                    f"{tuple(self.weights[name].shape)} in the ticket but {shape} in the model"
                )
        missing = next((name for name in self.weights if name not in tensors), None)
        if missing is not None:
            raise TicketError(
                f"this ticket is for another model: the model has no {missing} "
                f"(the ticket has {tuple(self.weights[missing].shape)})"
            )

    def _content(self) -> Content:
        return Content(self.mask, self.weights, vars(self.manifest), self.whole)


def _can_train(tensor: Tensor, *, infinite: bool) -> bool:
    """Whether there is no NaN and, unless `infinite` may be, no infinity.

    Buffers may hold infinities for good reason, as an attention mask does.
    """
    parts = tensor.flatten().split(2**20)  # temporary tensors stay small
    if infinite:
        return not any(bool(part.isnan().any()) for part in parts)
    return all(bool(part.isfinite().all()) for part in parts)


def _ticket(mask: Mask, weights: Mapping[str, Tensor], manifest: Manifest, whole: bool) -> Ticket:
    return Ticket(mask, weights, manifest, whole=whole)
