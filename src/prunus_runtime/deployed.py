"""A deployed network: something to call."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from prunus_runtime import file, native, reference
from prunus_runtime.errors import FallbackWarning, GraphError, InputError, RuntimeFileError
from prunus_runtime.executor import Executor
from prunus_runtime.graph import Graph
from prunus_runtime.limits import Limits
from prunus_runtime.measures import Measures, measure
from prunus_runtime.operation import Array, Shape


class Deployed:
    """Runs a network: `deployed(x)` for float32 `x` of shape (n, *input_shape), any n, or for
    integers if it is of tokens (`graph.tokens`). If the network knows its images (`graph.images`),
    uint8 pixels too, with the channels first or last; and `deployed.classify(images)` gives names
    and probabilities.

    numpy arrays give numpy arrays, torch tensors give torch tensors. Threads can share it; each
    call uses `threads` threads (by default as many as there are processors) that are free. `isa`
    forces an instruction set; `limits` bounds what the network may cost. `backend` says what runs
    it: `native` and the instructions it uses, or `reference`.
    """

    def __init__(
        self,
        graph: Graph,
        threads: int | None = None,
        *,
        isa: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        if threads is not None and (type(threads) is not int or threads < 1):
            raise InputError(f"threads is {threads!r}, not a positive integer")
        self.graph = graph
        self.input_shape: Shape = graph.input_shape
        self.output_shape: Shape = graph.output_shape
        self.backend = "reference"
        self._run: Callable[[Array], Array] = partial(reference.run, graph)
        if native.available():
            memory = math.inf if limits is None else limits.memory
            self._run = executor = Executor(graph, threads, isa, memory)
            self.backend = f"native {executor.isa}"
        else:
            warnings.warn(
                "The network runs with numpy alone, far more slowly than it could: "
                f"{native.why_not()}",
                FallbackWarning,
                stacklevel=3,
            )

    def __call__(self, x: Any) -> Any:
        """The output, of shape (n, *output_shape)."""
        array = x
        if hasattr(x, "detach"):
            try:
                array = x.detach().cpu().numpy()
            except TypeError as error:  # numpy has no bfloat16
                raise InputError(f"the input cannot become a numpy array: {error}") from None
        y = self._run(np.ascontiguousarray(self._checked(array)))
        return y if array is x else x.new_tensor(y, dtype=x.float().dtype)

    def classify(self, images: Any, top: int = 5) -> list[dict[str, float]]:
        """For each image the names of the `top` classes and their probabilities, the most probable
        first. `images` are a batch as for a call, or paths or contents of JPEG and PNG files.
        """
        known = self.graph.images
        if known is None or not known.classes:
            raise InputError("the file does not say which classes its outputs are: deploy it again")
        if isinstance(images, list | tuple):
            pixels = [known.read(image, self.input_shape) for image in images]
            images = np.stack(pixels) if pixels else np.zeros((0, *self.input_shape), np.uint8)
        output = np.asarray(self(images))
        last = next(o for o in self.graph.operations if o.output == self.graph.output)
        if last.kind == "softmax" and not last.attributes["log"]:
            with np.errstate(divide="ignore"):
                output = np.log(output)
        return known.probabilities(output, top)

    def _checked(self, x: object) -> Array:
        """`x` as the network takes it, if it fits: the one place where this is checked."""
        if not isinstance(x, np.ndarray):
            raise InputError(
                f"the input is a {type(x).__name__}, not a numpy array or torch tensor"
            )
        if self.graph.tokens is not None:
            return self.graph.tokens.inputs(x, self.input_shape)
        if x.dtype == np.uint8 and self.graph.images is not None:
            return self.graph.images.inputs(x, self.input_shape)
        if x.dtype != np.float32:
            raise InputError(f"the input is of {x.dtype}; make it float32, as the network is")
        if x.shape[1:] != self.input_shape or x.ndim == 0:
            wanted = f"(n, {', '.join(map(str, self.input_shape))})"
            hint = "; for one image, add the batch: x[None]" if x.shape == self.input_shape else ""
            raise InputError(f"the input has shape {x.shape}, not {wanted}{hint}")
        return x

    def measures(self) -> Measures:
        """Weights, kept weights and multiply-adds, of each layer and in all."""
        return measure(self.graph)

    def save(self, path: str | os.PathLike[str], store: str = "fp32") -> Path:
        """Write the network to one file; `store` rounds its weights: `fp32`, `fp16` or `int8`."""
        return file.save(self.graph, path, store)

    def __repr__(self) -> str:
        sizes = f"{self.input_shape} -> {self.output_shape}"
        return f"Deployed({sizes}, {len(self.graph.operations)} operations, {self.backend})"


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    *,
    limits: Limits | None = file.DEFAULT,
) -> Deployed:
    """The deployed network in the file at `path`; `RuntimeFileError` if there is none.

    A network that costs more than `limits` is refused before memory is taken; None is no limit.
    """
    graph = file.load(path, limits)
    try:
        return Deployed(graph, threads, limits=limits and limits.of_file(Path(path).stat().st_size))
    except GraphError as error:
        raise RuntimeFileError(f"{path}: {error}") from None
