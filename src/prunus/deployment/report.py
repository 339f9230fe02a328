"""What deploying did to a network: sizes, work, exactness, speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

from prunus.deployment.capture import inputs_like
from prunus.deployment.int8 import int8_layers
from prunus.deployment.onnx import encode_onnx, has_onnx, session
from prunus.deployment.timing import medians, torch_threads
from prunus.tables import percent, text_table
from prunus_runtime import file
from prunus_runtime.measures import LayerMeasures, Measures, measure
from prunus_runtime.storage import STORES

if TYPE_CHECKING:
    from prunus.deployment.deployed import Deployed

_SECONDS = 3.0


@dataclass(frozen=True)
class Report:
    """What happened, as data and (printed) as tables.

    The plain network is the one that was deployed, in PyTorch, with its zeros stored: `before`
    counts its weights and work, `after` those of the compacted one; `plain_bytes` is its size as
    safetensors, `file_bytes` that of the deployed file for each way to store weights.
    `max_difference` is the largest from the plain network, over the example and random inputs; its
    largest output there is `output_scale`. `milliseconds` are medians for one batch, measured in
    turns. `int8_layers` are those that compute in int8.
    """

    backend: str
    fallback: str
    int8_layers: list[str]
    before: Measures | None
    after: Measures | None
    plain_bytes: int
    file_bytes: dict[str, int]
    max_difference: float
    output_scale: float
    batch: int
    milliseconds: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"Runs with {self.backend}."]
        if self.fallback:
            parts.append(f"Not with the sparse runtime: {self.fallback}")
        if self.int8_layers and self.after:
            layers = len(self.after.layers)
            parts.append(f"{len(self.int8_layers)} of {layers} layers compute in int8.")
        if self.before and self.after:
            parts += [_sizes(self.before, self.after), _layers(self.before, self.after)]
        files = [["plain safetensors", f"{self.plain_bytes:,}", ""]]
        files += [
            [f"deployed, {store}", f"{count:,}", f"{self.plain_bytes / count:.1f}x smaller"]
            for store, count in self.file_bytes.items()
        ]
        parts.append(text_table(["file", "bytes", ""], files))
        parts.append(
            f"Largest difference from the plain network: {self.max_difference:.2e} "
            f"(outputs up to {self.output_scale:.3g})"
        )
        if self.milliseconds:
            own = self.milliseconds["deployed"]
            rows = [
                [name, f"{time:.3f}", f"{1000 * self.batch / time:,.0f}", f"{time / own:.2f}x"]
                for name, time in self.milliseconds.items()
            ]
            header = [f"batch of {self.batch}", "ms", "images/s", "slower by"]
            parts.append(text_table(header, rows))
        return "\n\n".join(parts)


def make_report(deployed: Deployed, *, speed: bool) -> Report:
    """Measure a deployed network against the plain one."""
    before = after = None
    files: dict[str, int] = {}
    if deployed.captured is not None and deployed.graph is not None:
        before, after = measure(deployed.captured), measure(deployed.graph)
        for store in STORES:
            files[store] = len(file.encode(deployed.graph, store))
    difference, scale = _difference(deployed)
    return Report(
        deployed.backend,
        deployed.fallback,
        int8_layers(deployed.graph) if deployed.graph else [],
        before,
        after,
        len(save({k: t.contiguous().clone() for k, t in deployed.plain.state_dict().items()})),
        files,
        difference,
        scale,
        len(deployed.example_input),
        _speed(deployed) if speed else {},
    )


def _difference(deployed: Deployed) -> tuple[float, float]:
    example, generator = deployed.example_input, torch.Generator().manual_seed(0)
    largest = scale = 0.0
    for x in (example, inputs_like(example, 8, generator)):
        with torch.no_grad():
            expected = deployed.plain(x).numpy()
        found = deployed(x.numpy())
        largest = max(largest, float(np.abs(found - expected).max(initial=0.0)))
        scale = max(scale, float(np.abs(expected).max(initial=0.0)))
    return largest, scale


def _speed(deployed: Deployed) -> dict[str, float]:
    x = deployed.example_input.contiguous()
    array = x.numpy()
    threads = deployed.threads or torch.get_num_threads()
    ways: dict[str, Callable[[], Any]] = {
        "deployed": lambda: deployed(array),
        "torch eager, plain": lambda: _eager(deployed.plain, x),
    }
    if deployed.exact is not None:
        exact = deployed.exact
        ways["deployed, in float32"] = lambda: exact(array)
    if deployed.module is not deployed.plain:
        ways["torch eager, compacted"] = lambda: _eager(deployed.module, x)
    if has_onnx():
        run = session(encode_onnx(deployed.plain, x), threads)
        ways["ONNX Runtime, plain"] = lambda: run(array)
    with torch_threads(threads):
        return {name: 1000 * time for name, time in medians(ways, _SECONDS).items()}


def _eager(module: nn.Module, x: torch.Tensor) -> Any:
    with torch.inference_mode():
        return module(x)


def _sizes(before: Measures, after: Measures) -> str:
    rows = [
        ("plain", f"{before.parameters:,}", before.weights, before.macs),
        ("plain, without zeros", "", before.kept_weights, before.kept_macs),
        ("compacted", f"{after.parameters:,}", after.weights, after.macs),
        ("compacted, without zeros", "", after.kept_weights, after.kept_macs),
    ]
    cells = [
        [
            name,
            parameters,
            f"{weights:,}",
            percent(weights / max(1, before.weights)),
            f"{macs:,}",
            percent(macs / max(1, before.macs)),
        ]
        for name, parameters, weights, macs in rows
    ]
    return text_table(["", "parameters", "weights", "", "multiply-adds", ""], cells)


def _layers(before: Measures, after: Measures) -> str:
    left = {layer.name: layer for layer in after.layers}
    gone = LayerMeasures("", "", 0, 0, 0, 0)
    rows = []
    for layer in before.layers:
        now = left.get(layer.name, gone)
        rows.append(
            [
                layer.name,
                f"{layer.weights:,}",
                f"{layer.kept_weights:,}",
                f"{now.weights:,}" if now.weights else "gone",
                f"{now.kept_weights:,}",
                f"{now.kept_macs:,}",
            ]
        )
    header = ["layer", "weights", "kept", "compacted", "kept", "kept multiply-adds"]
    return text_table(header, rows)
