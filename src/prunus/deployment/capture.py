"""A PyTorch model as a graph: `torch.export` traces it, a table of operators translates it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn

from prunus.deployment.quiet import quiet
from prunus.deployment.walk import Walk
from prunus.errors import DeployError, first_line
from prunus.gates import strip
from prunus_runtime.graph import Graph
from prunus_runtime.tokens import Tokens


def plain_copy(model: nn.Module) -> nn.Module:
    """A copy of `model` to deploy: gates stripped, float32, on the CPU, for evaluation."""
    try:
        copy = deepcopy(model)
    except Exception as error:
        raise DeployError(f"the model cannot be copied: {error}") from error
    return strip(copy).to("cpu", torch.float32).eval()


def as_input(example: Tensor) -> Tensor:
    """A batch as a network on the CPU takes it: float32, unless it is of whole numbers."""
    example = example.detach().cpu()
    return example.float() if example.is_floating_point() else example


def inputs_like(example: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """A random batch for the same network: normal numbers, or samples of `example` if whole."""
    if example.is_floating_point():
        return torch.randn(count, *example.shape[1:], generator=generator)
    return example[torch.randint(len(example), (count,), generator=generator)]


def capture(model: nn.Module, example_input: Tensor) -> Graph:
    """The graph of `model` as it computes in evaluation mode; `model` stays as it is.

    `example_input` is a batch of any size: only its shape without the batch matters. What cannot be
    captured is a `DeployError` that says which operation of which layer is the reason.
    """
    if not isinstance(example_input, Tensor) or example_input.ndim not in (2, 3, 4):
        raise DeployError(
            "the example input must be one tensor, a batch of images (n, channels, height, width), "
            "of sequences (n, positions, channels), of features or of tokens (n, features); "
            + (
                f"this one has the shape {tuple(example_input.shape)}"
                if isinstance(example_input, Tensor)
                else f"this is a {type(example_input).__name__}"
            )
        )
    is_tokens = example_input.dtype == torch.int64 and example_input.ndim == 2
    if not example_input.is_floating_point() and not is_tokens:
        raise DeployError(
            "the runtime takes float32 inputs, or int64 tokens (n, positions); this network takes "
            f"{example_input.dtype} of shape {tuple(example_input.shape)}"
        )
    plain = plain_copy(model)
    # Batches of one are special to torch.export: with two, all sizes are alike.
    shape = (2, *example_input.shape[1:])
    program = _export(plain, torch.zeros(shape, dtype=torch.int64 if is_tokens else torch.float32))
    graph = Walk(program, tuple(shape[1:])).graph()
    return replace(graph, tokens=Tokens(_vocabulary(graph))) if is_tokens else graph


def _vocabulary(graph: Graph) -> int:
    """How many tokens every table that the input goes to has a row for."""
    readers = [operation for operation in graph.operations if graph.input in operation.inputs]
    if any(operation.kind != "embedding" for operation in readers):
        raise DeployError("the network does something else with its tokens than to embed them")
    return min(len(operation.tensors["table"]) for operation in readers)


def _export(model: nn.Module, example_input: Tensor) -> torch.export.ExportedProgram:
    batch = ({0: torch.export.Dim.DYNAMIC},)
    try:
        with torch.no_grad(), quiet():
            # Without decompositions this only replaces operators in place by those that are not.
            program = torch.export.export(model, (example_input,), dynamic_shapes=batch)
            functional: torch.export.ExportedProgram = program.run_decompositions({})
            return functional
    except Exception as error:
        raise DeployError(
            f"torch.export cannot capture this model ({type(error).__name__}: "
            f"{first_line(error)}). What needs no graph still works: prunus.strip, and "
            "prunus.deployment.export_onnx if ONNX can express the model"
        ) from error
