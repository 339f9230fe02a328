"""A deployed network as a user holds it: called, described, saved, loaded, on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import prunus_runtime
from prunus_runtime import Deployed, FallbackWarning, Graph, InputError, native, reference
from prunus_runtime.__main__ import main
from prunus_runtime.measures import measure
from support.graphs import Builder, batch

pytestmark = pytest.mark.filterwarnings("ignore::prunus_runtime.FallbackWarning")


def small_graph() -> Graph:
    net = Builder((2, 5, 5))
    x = net.activation(net.conv("x", 4, stride=(2, 2)))
    return net.graph(net.linear(net.add("flatten", x), 3))


@pytest.fixture(params=["what there is", "reference"])
def deployed(request, monkeypatch) -> Deployed:
    if request.param == "reference":
        monkeypatch.setattr(native, "why_not", lambda: "a test says so")
    return Deployed(small_graph(), threads=1)


def test_numpy_in_numpy_out(deployed):
    x = batch(deployed.graph, 5)
    y = deployed(x)
    assert isinstance(y, np.ndarray)
    assert deployed.input_shape == (2, 5, 5)
    assert deployed.output_shape == (3,)
    np.testing.assert_allclose(y, reference.run(deployed.graph, x), atol=1e-5)
    backwards = x[::-1, :, ::-1]
    expected = reference.run(deployed.graph, np.ascontiguousarray(backwards))
    np.testing.assert_allclose(deployed(backwards), expected, atol=1e-5)
    assert deployed(x[:0]).shape == (0, 3)


def test_torch_in_torch_out(deployed):
    x = torch.randn(3, 2, 5, 5, requires_grad=True)
    y = deployed(x)
    assert isinstance(y, torch.Tensor)
    assert y.dtype == torch.float32
    np.testing.assert_array_equal(y.numpy(), deployed(x.detach().numpy()))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1.0]], "the input is a list, not a numpy array or torch tensor"),
        (np.zeros((1, 2, 5, 5)), "the input is of float64; make it float32"),
        (torch.zeros(1, 2, 5, 5).double(), "the input is of float64"),
        (torch.zeros(1, 2, 5, 5).bfloat16(), "cannot become a numpy array"),
        (np.zeros((1, 2, 5, 4), np.float32), r"shape \(1, 2, 5, 4\), not \(n, 2, 5, 5\)"),
        (np.zeros((2, 5, 5), np.float32), r"add the batch: x\[None\]"),
        (np.float32(1) * np.ones(()).astype(np.float32), "the input"),
    ],
)
def test_inputs_that_do_not_fit(x, message):
    with pytest.raises(InputError, match=message):
        Deployed(small_graph())(x)


def test_threads_must_be_a_number_of_threads():
    for threads in (0, -1, 1.5, True):
        with pytest.raises(InputError, match=r"threads is .*, not a positive integer"):
            Deployed(small_graph(), threads=threads)


def test_the_fallback_is_seen_and_says_why(monkeypatch):
    monkeypatch.setattr(native, "why_not", lambda: "no compiler found")
    with pytest.warns(FallbackWarning, match="with numpy alone.*: no compiler found"):
        assert Deployed(small_graph()).backend == "reference"
    monkeypatch.undo()
    if native.available():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert Deployed(small_graph()).backend.startswith("native ")


def test_save_and_load(deployed, tmp_path):
    path = deployed.save(tmp_path / "model.prunus")
    again = prunus_runtime.load(path, threads=1)
    x = batch(deployed.graph, 2)
    np.testing.assert_array_equal(again(x), deployed(x))
    rounded = prunus_runtime.load(deployed.save(tmp_path / "half.prunus", store="fp16"), threads=1)
    np.testing.assert_allclose(rounded(x), deployed(x), atol=0.02)
    assert repr(again) == f"Deployed((2, 5, 5) -> (3,), 4 operations, {again.backend})"


def test_threads_share_it(deployed):
    x = batch(deployed.graph, 40)
    expected = deployed(x)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(deployed, [x] * 20):
            np.testing.assert_array_equal(got, expected)


def test_measures_by_hand():
    net = Builder((2, 5, 5))
    conv = np.zeros((4, 2, 3, 3), np.float32)
    conv[0, 0, 0, 0] = conv[3, 1, 2, 2] = 1
    x = net.add(
        "conv", "x", {"weight": conv, "bias": np.ones(4, np.float32)}, "features.0",
        stride=[2, 2], padding=[1] * 4, dilation=[1, 1], groups=1,
    )  # fmt: skip
    x = net.add("flatten", x)
    linear = np.zeros((3, 36), np.float32)
    linear[1, :6] = 2
    measures = measure(net.graph(net.add("linear", x, {"weight": linear})))
    assert [layer.name for layer in measures.layers] == ["features.0", "v2"]
    first, second = measures.layers
    assert (first.weights, first.kept_weights) == (72, 2)
    assert (first.macs, first.kept_macs) == (72 * 9, 2 * 9)
    assert (second.weights, second.kept_weights) == (108, 6)
    assert (second.macs, second.kept_macs) == (108, 6)
    assert (measures.weights, measures.kept_weights) == (180, 8)
    assert (measures.macs, measures.kept_macs) == (756, 24)
    assert measures.parameters == 184
    assert measures.float32_bytes == 736
    lines = str(measures).splitlines()
    assert lines[0].split() == [
        "layer",
        "kind",
        "weights",
        "kept",
        "%",
        "multiply-adds",
        "kept",
        "%",
    ]
    assert lines[1].split() == ["features.0", "conv", "72", "2", "2.78", "648", "18", "2.78"]
    assert lines[3].split() == ["total", "180", "8", "4.44", "756", "24", "3.17"]


def test_measures_without_layers():
    net = Builder((1, 2, 2))
    measures = measure(net.graph(net.activation("x")))
    assert (measures.weights, measures.parameters) == (0, 0)
    assert "total" in str(measures)


@pytest.fixture
def model(tmp_path) -> Path:
    return Deployed(small_graph()).save(tmp_path / "model.prunus")


def test_the_command_runs_and_describes(model, tmp_path, capsys):
    x = batch(small_graph(), 2)
    np.save(tmp_path / "x.npy", x)
    arguments = ["run", "--threads", "1", str(model), str(tmp_path / "x.npy")]
    assert main(arguments) == 0
    shown = np.array([line.split() for line in capsys.readouterr().out.splitlines()], float)
    assert main([*arguments, str(tmp_path / "y.npy")]) == 0
    y = np.load(tmp_path / "y.npy")
    np.testing.assert_allclose(y, reference.run(small_graph(), x), atol=1e-5)
    np.testing.assert_allclose(shown, y, rtol=1e-4)
    assert main(["info", str(model)]) == 0
    described = capsys.readouterr().out
    assert "multiply-adds" in described
    assert f"file: {model.stat().st_size:,} bytes" in described


def test_the_command_whose_reader_goes_away(model, monkeypatch, capsys):
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patch, os.fdopen(writer, "w") as stdout:
        patch.setattr(sys, "stdout", stdout)
        assert main(["info", str(model)]) == 1
    assert capsys.readouterr().err == "error: what read our output is gone (such as | head)\n"


def test_the_command_says_what_is_wrong(model, tmp_path, capsys):
    def fails(*arguments: object) -> str:
        assert main([str(argument) for argument in arguments]) == 1
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert error.count("\n") == 1
        return error

    wrong = tmp_path / "wrong.npy"
    np.save(wrong, np.zeros((1, 2, 5, 4), np.float32))
    objects = tmp_path / "objects.npy"
    np.save(objects, np.array([{}], object), allow_pickle=True)
    assert "gone.prunus" in fails("info", tmp_path / "gone.prunus")
    assert "not a file of a deployed network" in fails("info", wrong)
    assert "shape (1, 2, 5, 4), not (n, 2, 5, 5)" in fails("run", model, wrong)
    assert "the input is of object" in fails("run", model, objects)
    assert "no array in the .npy format" in fails("run", model, model)
    assert "threads is 0" in fails("run", model, wrong, "--threads", "0")


def test_the_command_as_a_program(model):
    done = subprocess.run(
        [sys.executable, "-m", "prunus_runtime", "info", model],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(Path(prunus_runtime.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    assert "total" in done.stdout
