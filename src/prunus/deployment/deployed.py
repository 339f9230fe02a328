"""`prunus.deploy`: a trained sparse network as something small and fast to call."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import prunus_runtime
from prunus.deployment.capture import as_input, capture, plain_copy
from prunus.deployment.compact import compact
from prunus.deployment.int8 import in_int8
from prunus.deployment.module import to_module
from prunus.deployment.report import Report, make_report
from prunus.errors import DeployError
from prunus.gates import gated_parameters, strip
from prunus.masks import Mask
from prunus.tickets.ticket import Ticket
from prunus_runtime import file, reference
from prunus_runtime.graph import Graph
from prunus_runtime.images import Images

Store = Literal["fp32", "fp16", "int8"]


def deploy(
    model: nn.Module,
    ticket: Ticket | None,
    example_input: Tensor,
    *,
    weights: Literal["model", "ticket"] = "model",
    threads: int | None = None,
    images: Images | None = None,
) -> Deployed:
    """Make a trained sparse network small and fast: strip, capture, fold, compact, plan.

    The network that is deployed has the weights of `model`, under the mask of `ticket` if there is
    one and under the model's own gates if it carries any. `weights="ticket"` takes the ticket's
    weights as well: for tickets of finished training, as `prunus prune` and `prunus retrain` write
    them. `example_input` is a batch; its shape and size are those of the report's measurements.
    `threads` is how many threads a call uses, by default as many as there are processors. `images`
    says how images become the network's input and what its classes are called: a file that knows
    can be given JPEGs. A `Task` has it as `task.images`, if it is of images.

    `model` stays as it is. A network that the runtime cannot run works all the same, as a PyTorch
    module: `deployed.fallback` says why.
    """
    plain = _with_ticket(model, ticket, weights)
    example = as_input(example_input)
    try:
        captured = replace(capture(plain, example), images=images)
    except DeployError as error:
        return Deployed(plain, example, fallback=str(error), threads=threads)
    try:
        captured.check()
    except prunus_runtime.GraphError as error:
        raise DeployError(str(error)) from error
    return Deployed(plain, example, _of_any_length(captured, plain, example), threads=threads)


def _of_any_length(graph: Graph, plain: nn.Module, example: Tensor) -> Graph:
    """The graph, for sequences of tokens that may be shorter than the example if it then computes
    what the model does: this is tried, at three lengths."""
    if graph.tokens is None:
        return graph
    shorter = replace(graph, tokens=replace(graph.tokens, shorter=True))
    try:
        shorter.check()
        longest = example.shape[1]
        for length in sorted({1, (longest + 1) // 2, max(1, longest - 1)}):
            x = example[:2, :length]
            with torch.no_grad():
                expected = plain(x).numpy()
            found = reference.run(shorter, x.numpy().astype(np.float32))
            if expected.shape != found.shape or not np.allclose(expected, found, 1e-3, 1e-4):
                return graph
    except (prunus_runtime.GraphError, RuntimeError, ValueError, IndexError):
        return graph  # the model itself takes no other length, or its graph cannot
    return shorter


def _with_ticket(
    model: nn.Module, ticket: Ticket | None, weights: Literal["model", "ticket"]
) -> nn.Module:
    plain = plain_copy(model)
    if ticket is None:
        if weights == "ticket":
            raise DeployError("weights='ticket' needs a ticket; there is none")
        return plain
    if weights == "ticket":
        step = ticket.manifest.rewind_point
        if step is not None:
            raise DeployError(
                f"this ticket holds the early weights of step {step}, to re-train from: re-train "
                "it, and deploy the trained model with weights='model', or the ticket of that run"
            )
        return strip(ticket.apply(plain))
    if gated_parameters(model):
        revived = (ticket.mask - Mask.of(model)).kept
        if revived:
            raise DeployError(
                f"the ticket keeps {revived:,} weights that the model's own gates remove: it is "
                "not the ticket of this model; deploy with ticket=None for the model as it is"
            )
    return strip(ticket.mask.apply(plain))


class Deployed:
    """A deployed network: call it, save it, ask for its report.

    `plain` is the network that was deployed, as a plain PyTorch module with its zeros stored.
    `module` is the compacted network as a module (`plain` where the model could not be captured),
    `graph` the same as data, `backend` what runs it, and `fallback` the reason if that is PyTorch
    instead of the runtime. Of a network in int8, `exact` is the same one in float32.
    """

    exact: Deployed | None = None

    def __init__(
        self,
        plain: nn.Module,
        example_input: Tensor,
        captured: Graph | None = None,
        *,
        fallback: str = "",
        threads: int | None = None,
    ) -> None:
        self.plain = plain
        self.example_input = example_input
        self.captured = captured
        self.fallback = fallback
        self.threads = threads
        self.graph: Graph | None = None
        self.module = plain
        self._runtime: prunus_runtime.Deployed | None = None
        if captured is not None:
            self.graph = compact(captured)
            self.module = to_module(self.graph)
            self._start(self.graph)

    def _start(self, graph: Graph) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", prunus_runtime.FallbackWarning)
            runtime = prunus_runtime.Deployed(graph, self.threads)
        if runtime.backend == "reference":  # PyTorch is faster than numpy alone
            self.fallback = " ".join(str(warning.message) for warning in caught)
        else:
            self._runtime = runtime

    @property
    def backend(self) -> str:
        """What computes: `native` and its instructions, or `torch`."""
        return "torch" if self._runtime is None else self._runtime.backend

    def __call__(self, x: Any) -> Any:
        """The output for a batch; a numpy array for numpy, a torch tensor for torch."""
        if self._runtime is not None:
            return self._runtime(x)
        with torch.no_grad():
            if isinstance(x, Tensor):
                return self.module(x.to("cpu")).to(x.device)
            return self.module(torch.from_numpy(np.ascontiguousarray(x))).numpy()

    def save(self, path: str | os.PathLike[str], store: Store = "fp32") -> Path:
        """Write one file that `prunus_runtime.load` reads without torch or the model's code.

        `store` rounds the kept weights: `fp16`, or `int8` with a scale for each filter.
        """
        if self.graph is None:
            raise DeployError(f"there is no graph to save: {self.fallback}")
        return file.save(self.graph, path, store)

    def stored(self, store: Store) -> Deployed:
        """The network as it is after saving with `store` and loading again."""
        if self.graph is None:
            raise DeployError(f"there is no graph to store: {self.fallback}")
        content = file.encode(self.graph, store)
        again = file.decode(content, limits=None)
        network = Deployed(self.plain, self.example_input, again, threads=self.threads)
        network.exact = self.exact
        return network

    def int8(self, inputs: Any) -> Deployed:
        """The network with those layers in int8, weights and activations, that gain speed by it.

        Ranges of activations are found with `inputs`: some hundred that the network was trained on,
        not those it is evaluated with. What it does to the accuracy must be measured.
        """
        if self.graph is None:
            raise DeployError(f"there is no graph to compute in int8: {self.fallback}")
        array = inputs.numpy() if isinstance(inputs, Tensor) else np.asarray(inputs)
        graph = in_int8(self.graph, array.astype(np.float32))
        network = Deployed(self.plain, self.example_input, graph, threads=self.threads)
        network.exact = self
        return network

    def report(self, *, speed: bool = True) -> Report:
        """What happened to the network; with `speed`, also measured times (some seconds)."""
        return make_report(self, speed=speed)

    def __repr__(self) -> str:
        return f"<Deployed network, runs with {self.backend}>"
