"""Tables of how fast deployed networks are, from the rows of `benchmarks/deployed_speed.py`.

Each function gives a header and lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Table = tuple[list[str], list[list[str]]]


def _random_masks(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """Rows by network and batch, then by mask."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        if row["mask"].endswith("%"):
            found.setdefault((row["network"], row["batch"]), {})[row["mask"]] = row
    return found


def speed(rows: Sequence[dict[str, Any]]) -> Table:
    """Times of dense ONNX Runtime over those of the sparse runtime, by random mask."""
    places = _random_masks(rows)
    masks = list(next(iter(places.values())))
    lines = [
        [*map(str, place), *(f"{here[mask]['speedup']:.1f}" for mask in masks)]
        for place, here in places.items()
    ]
    return ["network", "batch", *masks], lines


def engines(rows: Sequence[dict[str, Any]]) -> Table:
    """Times of dense ONNX Runtime over those of other engines that ran the dense network."""
    dense = {
        place: next(iter(here.values()))["dense_seconds"]
        for place, here in _random_masks(rows).items()
    }
    others = [name for name in next(iter(dense.values())) if name != "onnxruntime"]
    lines = [
        [*map(str, place), *(f"{seconds['onnxruntime'] / seconds[name]:.2f}" for name in others)]
        for place, seconds in dense.items()
    ]
    return ["network", "batch", *others], lines


def exact(rows: Sequence[dict[str, Any]]) -> str:
    """A sentence: how exact all networks are, and how they compare with the fastest engine."""
    least = min(min(row["dense_seconds"].values()) / row["seconds"] for row in rows)
    difference = max(row["relative_difference"] for row in rows)
    return (
        f"In every cell the sparse network is at least {least:.1f} times as fast as the dense one "
        f"in the fastest of all these engines, and differs from PyTorch by at most "
        f"{difference:.0e} of the largest output."
    )


def learned(rows: Sequence[dict[str, Any]]) -> Table:
    """Times of dense ONNX Runtime over those of networks whose masks were learned."""
    lines = [
        [
            row["network"],
            row["mask"],
            f"{100 * row['kept_weights']:.1f} %",
            f"{100 * row['kept_macs']:.1f} %",
            str(row["batch"]),
            f"{row['speedup']:.1f}",
        ]
        for row in rows
        if not row["mask"].endswith("%")
    ]
    return ["network", "mask", "weights kept", "multiply-adds kept", "batch", "speed"], lines


def int8_layers(rows: Sequence[dict[str, Any]]) -> Table:
    """What int8 gains in layers with random masks, by the way that vectors run."""
    lines = [
        [f"{100 * row['density']:g} %", row["way"], f"{row['lists']:.2f}", f"{row['bundles']:.2f}"]
        for row in rows
    ]
    return ["kept", "vectors", "lists", "bundles"], lines


def int8_networks(rows: Sequence[dict[str, Any]]) -> Table:
    """What int8 gains in whole networks with random masks, and how many layers use it."""
    lines = []
    for row in rows:
        seconds = row["seconds"]
        lines.append(
            [
                row["network"],
                f"{100 * row['sparsity']:g} %",
                str(row["batch"]),
                f"{row['int8_layers']} of {row['layers']}",
                f"{1e3 * seconds['fp32']:.2f}",
                f"{1e3 * seconds['int8']:.2f}",
                f"{seconds['fp32'] / seconds['int8']:.2f}",
                f"{seconds['onnxruntime'] / seconds['int8']:.1f}",
            ]
        )
    header = ["network", "removed", "batch", "layers in int8", "fp32, ms", "int8, ms", "gain"]
    return [*header, "against dense ONNX Runtime"], lines


def int8_runs(rows: Sequence[dict[str, Any]]) -> Table:
    """What rounding does to trained networks: accuracy, size and speed."""
    names = {
        "fp32": "fp32",
        "fp16": "`--store fp16`",
        "int8 stored": "`--store int8`",
        "int8": "`--compute int8`",
    }
    batches = list(rows[0]["seconds"])
    lines = []
    for row in rows:
        for name, title in names.items():
            times = row["seconds"].values()
            gains = [f"{t['fp32'] / t['int8']:.2f}" if name == "int8" else "" for t in times]
            about = f"{row['network']}, {100 * row['kept_macs']:.0f} % of multiply-adds"
            accuracy = f"{100 * row['accuracy'][name]:.2f} %"
            lines.append([about, title, accuracy, f"{row['bytes'][name] / 1000:.1f}", *gains])
    header = ["network", "", "test accuracy", "kB"]
    return [*header, *(f"faster, batch {batch}" for batch in batches)], lines
