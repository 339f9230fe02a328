"""Export to ONNX, checked in ONNX Runtime before the file appears. Needs the extra `onnx`."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prunus.deployment.capture import as_input, inputs_like, plain_copy
from prunus.deployment.quiet import quiet
from prunus.errors import DeployError, first_line, how_to_install
from prunus.files import write_atomically

_TOLERANCE = 1e-3
"""Of the output's largest value: what differs more was exported wrongly."""


def export_onnx(model: nn.Module, path: str | os.PathLike[str], example_input: Tensor) -> float:
    """Write `model`, gates stripped, as ONNX with a batch of any size.

    The file is run in ONNX Runtime on random inputs first. Returns the largest absolute difference
    from PyTorch; a file that computes something else is an error and is not written.
    """
    plain = plain_copy(model)
    content = encode_onnx(plain, example_input)
    difference = _check(plain, content, example_input)
    write_atomically(path, content)
    return difference


def encode_onnx(plain: nn.Module, example_input: Tensor) -> bytes:
    """A plain model, in evaluation mode, as the content of an ONNX file."""
    needed("onnx", "onnxscript")
    example = as_input(example_input).new_zeros((2, *example_input.shape[1:]))
    problems = []
    for export in (_exported, _traced):
        try:
            with quiet(), torch.no_grad():
                return export(plain, example)
        except Exception as error:
            problems.append(f"{type(error).__name__}: {first_line(error)}")
    raise DeployError(f"the model cannot be exported to ONNX ({'; '.join(problems)})")


def session(content: bytes, threads: int | None = None) -> Callable[[Any], Any]:
    """A function that runs ONNX content in ONNX Runtime on a batch of numpy arrays."""
    (runtime,) = needed("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    made = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    name = made.get_inputs()[0].name
    return lambda x: made.run(None, {name: x})[0]


def has_onnx() -> bool:
    """Whether the extra `onnx` is there: models can be exported, and run in ONNX Runtime."""
    return all(find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))


def needed(*names: str) -> list[Any]:
    """Modules of the extra `onnx`."""
    try:
        return [import_module(name) for name in names]
    except ImportError as error:
        raise DeployError(
            f"ONNX needs the package {error.name}: {how_to_install('onnx')}"
        ) from error


def _exported(plain: nn.Module, example: Tensor) -> bytes:
    program = torch.onnx.export(
        plain,
        (example,),
        dynamo=True,
        verbose=False,
        input_names=["input"],
        output_names=["output"],
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
    )
    assert program is not None
    model = program.model_proto
    for node in model.graph.node:
        node.ClearField("metadata_props")  # where in the source code it came from
    content: bytes = model.SerializeToString()
    return content


def _traced(plain: nn.Module, example: Tensor) -> bytes:
    """By running the model: for those that torch.export cannot capture."""
    buffer = io.BytesIO()
    torch.onnx.export(
        plain,
        (example,),
        buffer,  # type: ignore[arg-type]
        dynamo=False,
        input_names=["input"],
        output_names=["output"],
        dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}},
    )
    return buffer.getvalue()


def _check(plain: nn.Module, content: bytes, example_input: Tensor) -> float:
    run = session(content)
    generator = torch.Generator().manual_seed(0)
    example = as_input(example_input)
    inputs = [*(inputs_like(example, n, generator) for n in (1, 3)), example]
    largest = 0.0
    with torch.no_grad():
        for x in inputs:
            expected = plain(x).numpy()
            difference = float(np.abs(run(x.numpy()) - expected).max(initial=0.0))
            scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
            if not difference <= _TOLERANCE * scale:
                raise DeployError(
                    f"ONNX Runtime computes something else than PyTorch: the largest difference is "
                    f"{difference:.3g} where outputs are up to {scale:.3g}; nothing was written"
                )
            largest = max(largest, difference)
    return largest
