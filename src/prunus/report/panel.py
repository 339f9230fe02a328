"""What the page shows of one ticket: facts, settings, curves, layers, mask, and a command."""

from __future__ import annotations

import base64
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from warnings import warn

import numpy as np
import yaml
from numpy.typing import NDArray
from torch import Tensor

from prunus.errors import PrunusWarning, TicketError
from prunus.files import parse_json, read_text
from prunus.masks import LayerDensity
from prunus.report.parameters import as_text
from prunus.report.records import Record
from prunus.report.tables import KEPT, SIZES, scaled
from prunus.runs.results import METRICS, EpochMetrics, parse_epoch
from prunus.runs.settings import TaskOfRun
from prunus.runs.settings_file import flattened
from prunus.tasks.metrics import MetricInfo
from prunus.tickets.ticket import Ticket

PICTURES = 600_000
"""Characters that the pictures of a page may take together."""
LARGEST = 64
"""Pixels of the longer side of a picture, at most."""
SIDES = (LARGEST, 32, 16)
_SHADES = 16  # four bits
_EPOCHS = 50
"""Points of a curve in each stage, at most."""

Fractions = NDArray[np.float32]


def describe(record: Record) -> dict[str, Any]:
    """All but curves and pictures, as plain data."""
    layers = _layers(record)
    return {
        "seed": record.seed,
        "facts": _facts(record),
        "settings": [[name, _text(value)] for name, value in flattened(record.settings).items()],
        "command": retrain_command(record),
        "run": str(record.folder),
        "stage": record.stage,
        "retraining": str(record.retraining) if record.retraining else None,
        "layers": layers,
        "blocks": _blocks(record),
    }


def retrain_command(record: Record) -> str | None:
    """What re-trains the ticket as it was re-trained, or else as the search trained.

    Folders outside the run's own are named on the command line, because no settings file may name
    them. The code of others is not named.
    """
    if record.ticket is None:
        return None
    words = ["prunus", "retrain", str(record.ticket)]
    data = record.settings.get("data_root")
    if isinstance(data, str) and data != str(TaskOfRun().data_root):
        words += ["--data", data]
    if record.retraining is not None:
        words += ["--config", str(record.retraining / "settings.yaml")]
        words += ["--out", str(record.retraining.parent)]
    else:
        words += ["--seed", str(record.seed)]
        for name in ("recipe", "data"):
            value = record.settings.get(name)
            if isinstance(value, Mapping):
                text = yaml.safe_dump(dict(value), default_flow_style=True, width=10**6).strip()
                words += ["--set", f"{name}={text}"]
    return shlex.join(words)


def curves(folder: Path, metric: MetricInfo) -> list[dict[str, Any]]:
    """The metrics of a run, epoch by epoch, as they are shown; long stages are thinned out."""
    path = folder / METRICS
    stages: dict[str, list[EpochMetrics]] = {}
    try:
        text = read_text(path, errors="replace")
    except OSError:
        return []
    for line in text.splitlines():
        try:
            epoch = parse_epoch(parse_json(line))
            stages.setdefault(epoch.stage, []).append(epoch)
        except (ValueError, TypeError):
            if not text.endswith(line):  # the last line may be half written
                warn(f"left out a damaged line of {path}", PrunusWarning, stacklevel=2)
    found: list[dict[str, Any]] = []
    before = 0
    for stage, epochs in stages.items():
        chosen = np.unique(np.linspace(0, len(epochs) - 1, min(_EPOCHS, len(epochs))).round())
        found += [
            {"stage": stage, "at": before + int(i) + 1, **_shown(epochs[int(i)], metric)}
            for i in chosen
        ]
        before += len(epochs)
    return found


def _shown(epoch: EpochMetrics, metric: MetricInfo) -> dict[str, float | None]:
    value = epoch.validation.get(metric.name)
    return {
        "loss": round(epoch.loss, 4),
        "kept": round(scaled(KEPT, epoch.density), 2),
        "value": None if value is None else round(scaled(metric, value), 4),
    }


def picture_urls(tickets: Sequence[Path]) -> dict[Path, dict[str, str]]:
    """Pictures of all layers of all tickets, as large as `PICTURES` allows.

    Where even the smallest are too large, the tickets at the end have none.
    """
    result: dict[Path, dict[str, str]] = {}
    for side in SIDES:
        result, size = {}, 0
        for path in tickets:
            fractions = _read(path).fractions
            urls = {name: as_data_url(shrunk(f, side)) for name, f in fractions.items()}
            size += sum(map(len, urls.values()))
            if size > PICTURES:
                break
            result[path] = urls
        else:
            break
    return result


def _facts(record: Record) -> list[tuple[str, str]]:
    last = list(record.measured)[-1]
    sizes = {title.removesuffix(" %"): record.kept(name, last) for name, title in SIZES.items()}
    facts = [
        ("task", record.task),
        ("found by", record.row),
        ("stage", record.stage),
        ("parameters", as_text(record.parameters)),
        ("seed", str(record.seed)),
        ("weights kept", KEPT.text(record.density)),
        *((title, "" if size is None else KEPT.text(size)) for title, size in sizes.items()),
        ("epochs of search", str(record.epochs)),
    ]
    for measure, found in record.measured.items():
        for split, values in (("test", found.test), ("validation", found.validation)):
            for metric in record.metrics:
                if metric.name in values:
                    name = metric.name if len(record.metrics) > 1 else ""
                    label = ", ".join(filter(None, [measure, split, name]))
                    facts.append((label, metric.text(values[metric.name])))
    return [(name, value) for name, value in facts if value]


def _layers(record: Record) -> list[dict[str, Any]]:
    found = _ticket_of(record).layers
    if not found:
        return [{"name": n, "kept": round(100 * d, 3)} for n, d in record.layers.items()]
    return [
        {
            "name": layer.name,
            "kept": round(100 * layer.density, 3),
            "weights": f"{layer.kept:,} of {layer.total:,}",
            "shape": "x".join(map(str, layer.shape)),
        }
        for layer in found
    ]


def _blocks(record: Record) -> list[dict[str, Any]]:
    """The layers of each module together; nothing if that is no more than the layers."""
    blocks: dict[str, list[LayerDensity]] = {}
    found = _ticket_of(record).layers
    for layer in found:
        module = layer.name.rpartition(".")[0]
        blocks.setdefault(module.rpartition(".")[0] or module, []).append(layer)
    if len(blocks) in (1, len(found)):
        return []
    return [
        {
            "name": name,
            "kept": round(100 * sum(n.kept for n in group) / sum(n.total for n in group), 3),
        }
        for name, group in blocks.items()
        if any(n.total for n in group)
    ]


def versions_of(record: Record) -> dict[str, str]:
    """Of the programs that made a record's ticket, as it says."""
    return dict(_ticket_of(record).versions)


class _Content(NamedTuple):
    """What the page shows of a ticket file; nothing if it cannot be read."""

    layers: tuple[LayerDensity, ...] = ()
    fractions: Mapping[str, Fractions] = MappingProxyType({})
    """How much of each kernel is kept, by layer."""
    versions: Mapping[str, str] = MappingProxyType({})


def _ticket_of(record: Record) -> _Content:
    return _read(record.ticket) if record.ticket else _Content()


def _read(path: Path) -> _Content:
    try:
        status = path.stat()
    except OSError:  # moved, or not written yet
        return _Content()
    return _read_version(path, status.st_mtime_ns)


@lru_cache(maxsize=4096)  # a watched page is made again and again
def _read_version(path: Path, version: int) -> _Content:  # noqa: ARG001
    try:
        ticket = Ticket.load(path)
    except TicketError as error:
        warn(f"left out the mask of a damaged ticket: {error}", PrunusWarning, stacklevel=2)
        return _Content()
    fractions = {name: kept_fractions(m) for name, m in ticket.mask.items() if m.numel()}
    return _Content(ticket.mask.layers, fractions, ticket.manifest.versions)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


# Pictures of masks


def kept_fractions(mask: Tensor) -> Fractions:
    """How much of each kernel is kept: outputs from top to bottom, inputs from left to right.

    Where the layer has more than `LARGEST` outputs or inputs, neighbours are averaged.
    """
    kept = mask.detach().numpy()
    if kept.ndim < 2:
        kept = kept.reshape(1, -1)
    means = kept.reshape(kept.shape[0], kept.shape[1], -1).mean(axis=2, dtype=np.float32)
    return shrunk(means, LARGEST)


def shrunk(fractions: Fractions, side: int) -> Fractions:
    """The same with at most `side` rows and columns."""
    return _averaged(_averaged(fractions, 0, side), 1, side)


def as_data_url(fractions: Fractions) -> str:
    """A PNG, inline: white keeps nothing, black everything.

    Shades follow the square root of the kept fraction, so that a few per cent can be seen.
    """
    from PIL import Image

    shades = np.rint((_SHADES - 1) * (1 - np.sqrt(fractions))).astype(np.uint8)
    image = Image.fromarray(shades)
    image.putpalette([round(255 * i / (_SHADES - 1)) for i in range(_SHADES) for _ in range(3)])
    buffer = io.BytesIO()
    image.save(buffer, "png", bits=4)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _averaged(values: Fractions, axis: int, side: int) -> Fractions:
    length = values.shape[axis]
    if length <= side:
        return values
    edges = np.linspace(0, length, side + 1).round().astype(int)
    sums: Any = np.add.reduceat(values, edges[:-1], axis=axis)
    widths = np.diff(edges).astype(np.float32)
    result: Fractions = sums / (widths[:, None] if axis == 0 else widths)
    return result
