"""A deployed network as a file, in the format that is asked for."""

from __future__ import annotations

import io
from pathlib import Path

import torch

from prunus.deployment.deployed import Deployed, Store
from prunus.deployment.onnx import export_onnx
from prunus.deployment.quiet import quiet
from prunus_runtime.atomic import write_atomically


def write(deployed: Deployed, path: Path, format: str, store: Store = "fp32") -> None:
    """Write `prunus`, `onnx`, or `module`: a program that `torch.export.load` reads."""
    if format == "prunus":
        deployed.save(path, store)
    elif format == "onnx":
        export_onnx(deployed.module, path, deployed.example_input)
    else:
        example = torch.zeros(2, *deployed.example_input.shape[1:])
        batch = ({0: torch.export.Dim.DYNAMIC},)
        buffer = io.BytesIO()
        with quiet():
            program = torch.export.export(deployed.module, (example,), dynamic_shapes=batch)
            torch.export.save(program, buffer)
        write_atomically(path, buffer.getvalue())
