"""ONNX: what is written computes the same in ONNX Runtime, with any batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from prunus import ContinuousSparsification, DeployError
from prunus.deployment import export_onnx, onnx
from support.deployable import Branching, Mobile, randomised


def run(path: Path, x: torch.Tensor) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"input": x.numpy()})[0]


def test_a_model_with_gates_is_exported_stripped(tmp_path: Path) -> None:
    model = randomised(Mobile(), 0.7)
    ContinuousSparsification(model, steps=1, select="all", mask_init=0.5)
    path = tmp_path / "model.onnx"
    difference = export_onnx(model, path, torch.randn(1, 3, 9, 9))
    assert 0 <= difference < 1e-4
    x = torch.randn(5, 3, 9, 9)
    model.eval()
    from prunus import hard

    with hard(model), torch.no_grad():
        np.testing.assert_allclose(run(path, x), model(x).numpy(), atol=1e-4)


def test_models_that_cannot_be_captured_are_exported_by_running_them(tmp_path: Path) -> None:
    model, path, x = Branching(), tmp_path / "model.onnx", torch.randn(3, 4)
    export_onnx(model, path, x)
    np.testing.assert_allclose(run(path, x), model(x).detach().numpy(), atol=1e-5)


def test_a_wrong_export_is_an_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = onnx.encode_onnx(Branching().eval(), torch.zeros(2, 4))  # with other random weights
    monkeypatch.setattr(onnx, "encode_onnx", lambda *_: wrong)
    with pytest.raises(DeployError, match="computes something else than PyTorch"):
        export_onnx(Branching(), tmp_path / "model.onnx", torch.zeros(2, 4))
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_the_error_says_what_to_install() -> None:
    with pytest.raises(DeployError, match=r"pip install .*\[onnx\]"):
        onnx.needed("a_package_that_is_not_there")
