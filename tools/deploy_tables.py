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


def int8(rows: Sequence[dict[str, Any]]) -> Table:
    """Microseconds of linear layers of tokens, in float32 and in int8."""
    kinds = ["fp32_lists", "fp32_bundles", "int8_groups", "rounding"]
    lines = [
        [
            f"{row['inputs']} to {row['outputs']}",
            f"{100 * row['density']:g} %",
            *(f"{1e6 * row[kind]:.0f}" for kind in kinds),
            f"{row['gain']:.2f}",
        ]
        for row in rows
    ]
    header = ["layer", "kept", "lists, µs", "bundles, µs", "int8, µs", "rounding, µs", "gain"]
    return header, lines
