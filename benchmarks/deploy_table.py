"""The measurements of deployed networks as tables."""

from __future__ import annotations

from typing import Any

Table = tuple[list[str], list[list[str]]]


def penalty_cost(runs: list[Any]) -> Table:
    """What counting multiply-adds in the penalty does."""
    rows = [
        [
            f"{run['penalty']:g}",
            run["cost"],
            *(f"{100 * run[name]:.2f} %" for name in ("kept_weights", "kept_macs")),
            f"{run['images_per_second']:,.0f}",
            f"{100 * run['test_accuracy']:.2f} %",
        ]
        for run in runs
    ]
    header = ["penalty", "counted in", "weights kept", "multiply-adds kept", "images/s"]
    return [*header, "test accuracy"], rows


def speed(content: dict[str, Any]) -> Table:
    """Times of dense ONNX Runtime over those of the sparse runtime, by random mask."""
    places = _random_masks(content)
    masks = list(next(iter(places.values())))
    rows = [
        [*map(str, place), *(f"{here[mask]['speedup']:.1f}" for mask in masks)]
        for place, here in places.items()
    ]
    return ["network", "batch", *masks], rows


def engines(content: dict[str, Any]) -> Table:
    """Times of dense ONNX Runtime over those of other engines that ran the dense network."""
    dense = {
        place: next(iter(here.values()))["dense_seconds"]
        for place, here in _random_masks(content).items()
    }
    others = [name for name in next(iter(dense.values())) if name != "onnxruntime"]
    rows = [
        [*map(str, place), *(f"{seconds['onnxruntime'] / seconds[name]:.2f}" for name in others)]
        for place, seconds in dense.items()
    ]
    return ["network", "batch", *others], rows


def _random_masks(content: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """Rows by network and batch, then by mask."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in content["rows"]:
        if row["mask"].endswith("%"):
            found.setdefault((row["network"], row["batch"]), {})[row["mask"]] = row
    return found


def learned(content: dict[str, Any]) -> Table:
    """The same for masks that were learned."""
    rows = [
        [
            row["network"],
            row["mask"],
            f"{100 * row['kept_weights']:.1f} %",
            f"{100 * row['kept_macs']:.1f} %",
            str(row["batch"]),
            f"{row['speedup']:.1f}",
        ]
        for row in content["rows"]
        if not row["mask"].endswith("%")
    ]
    header = ["network", "mask", "weights kept", "multiply-adds kept", "batch", "speed"]
    return header, rows


def example(networks: list[Any]) -> Table:
    """Each network in four forms: accuracy, speed and size."""
    rows = []
    for found in networks:
        for way, numbers in found["rows"].items():
            form = "deployed" if way.endswith("deployed") else "dense"
            speeds = [f"{value:,.0f}" for value in numbers["images_per_second"].values()]
            rows.append(
                [
                    found["network"],
                    way,
                    f"{100 * numbers['accuracy']:.2f} %",
                    *speeds,
                    f"{found['bytes'][form] / 1000:,.0f}",
                ]
            )
    header = ["network", "", "test accuracy", "images/s, batch 1", "images/s, batch 128", "kB"]
    return header, rows


def example_notes(networks: list[Any]) -> str:
    """What was kept, and how exact the deployed networks are."""
    return "\n\n".join(
        f"{found['network']} kept {100 * found['kept_weights']:.1f} % of its weights and "
        f"{100 * found['kept_macs']:.1f} % of its multiply-adds; deployed, it differs from the "
        f"sparse network in PyTorch by at most {found['max_difference']:.1e}."
        for found in networks
    )
