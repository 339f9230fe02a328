"""What the page shows of one ticket: facts, settings, curves, layers, mask, and a command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
import yaml

from prunus.errors import PrunusWarning, TicketError
from prunus.masks import LayerDensity
from prunus.report.parameters import as_text, flattened
from prunus.report.pictures import LARGEST, Fractions, as_data_url, kept_fractions, shrunk
from prunus.report.runs import Record
from prunus.ticket import Ticket

PICTURES = 600_000
"""Characters that the pictures of a page may take together."""
SIDES = (LARGEST, 32, 16)
_EPOCHS = 50
"""Points of a curve in each phase, at most."""


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
    """What re-trains the ticket as it was re-trained, or else as the search trained."""
    if record.ticket is None:
        return None
    words = ["prunus", "retrain", str(record.ticket)]
    if record.retraining is not None:
        words += ["--config", str(record.retraining / "settings.yaml")]
    else:
        words += ["--seed", str(record.seed)]
        for name in ("recipe", "data"):
            value = record.settings.get(name)
            if isinstance(value, Mapping):
                text = yaml.safe_dump(dict(value), default_flow_style=True, width=10**6).strip()
                words += ["--set", f"{name}={text}"]
    return shlex.join(words)


def curves(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run, epoch by epoch; long phases are thinned out."""
    path = folder / "metrics.jsonl"
    phases: dict[str, list[dict[str, Any]]] = {}
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    for line in text.splitlines():
        try:
            numbers = json.loads(line)
            phases.setdefault(str(numbers["phase"]), []).append(_rounded(numbers))
        except (ValueError, KeyError, TypeError):
            if not text.endswith(line):  # the last line may be half written
                warn(f"left out a damaged line of {path}", PrunusWarning, stacklevel=2)
    return [
        {"phase": phase, "at": position, **numbers}
        for phase, numbers, position in _positions(phases)
    ]


def picture_urls(tickets: Sequence[Path]) -> dict[Path, dict[str, str]]:
    """Pictures of all layers of all tickets, as large as `PICTURES` allows.

    Where even the smallest are too large, the tickets at the end have none.
    """
    result: dict[Path, dict[str, str]] = {}
    for side in SIDES:
        result, size = {}, 0
        for path in tickets:
            urls = {name: as_data_url(shrunk(p, side)) for name, p in _read(path)[1].items()}
            size += sum(map(len, urls.values()))
            if size > PICTURES:
                break
            result[path] = urls
        else:
            break
    return result


def _positions(phases: Mapping[str, Sequence[dict[str, Any]]]) -> list[tuple[str, Any, int]]:
    result: list[tuple[str, Any, int]] = []
    before = 0
    for phase, lines in phases.items():
        chosen = np.unique(np.linspace(0, len(lines) - 1, min(_EPOCHS, len(lines))).round())
        result += [(phase, lines[int(i)], before + int(i) + 1) for i in chosen]
        before += len(lines)
    return result


def _rounded(numbers: Mapping[str, Any]) -> dict[str, float | None]:
    return {
        name: round(float(numbers[name]), 4) if name in numbers else None
        for name in ("loss", "density", "validation_accuracy")
    }


def _facts(record: Record) -> list[tuple[str, str]]:
    facts = [
        ("task", record.task),
        ("found by", record.row),
        ("stage", record.stage),
        ("parameters", as_text(record.parameters)),
        ("seed", str(record.seed)),
        ("weights kept", f"{100 * record.density:.2f} %"),
        ("epochs of search", str(record.epochs)),
    ]
    for measure, accuracy in record.accuracies.items():
        for split, value in (("test", accuracy.test), ("validation", accuracy.validation)):
            if value is not None:
                facts.append((f"{measure}, {split}", f"{100 * value:.2f} %"))
    return [(name, value) for name, value in facts if value]


def _layers(record: Record) -> list[dict[str, Any]]:
    found = _of_ticket(record)
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
    """Layers of one module together; nothing if that tells no more than the layers."""
    blocks: dict[str, list[LayerDensity]] = {}
    found = _of_ticket(record)
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


def _of_ticket(record: Record) -> tuple[LayerDensity, ...]:
    return _read(record.ticket)[0] if record.ticket else ()


_Content = tuple[tuple[LayerDensity, ...], dict[str, Fractions]]


def _read(path: Path) -> _Content:
    """Layers and pictures of a ticket; nothing if it cannot be read."""
    try:
        status = path.stat()
    except OSError:  # moved or not written yet: results do without it
        return (), {}
    return _read_version(path, status.st_mtime_ns)


@lru_cache(maxsize=4096)  # a watched page is made again and again
def _read_version(path: Path, version: int) -> _Content:  # noqa: ARG001
    try:
        mask = Ticket.load(path).mask
    except TicketError as error:
        warn(f"left out the mask of a damaged ticket: {error}", PrunusWarning, stacklevel=2)
        return (), {}
    return mask.layers, {name: kept_fractions(m) for name, m in mask.items() if m.numel()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
