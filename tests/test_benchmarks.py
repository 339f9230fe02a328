"""The benchmark scripts run."""

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from prunus_runtime import Deployed, native
from support.graphs import Builder

ROOT = Path(__file__).parent.parent


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script of that name as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gate_overhead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.json"
    module = load("gate_overhead", monkeypatch)
    for part in ("eager", "memory"):  # compiling takes too long here
        arguments = ["--out", str(out), "--seconds", "0", "--networks", "mlp", "--parts", part]
        monkeypatch.setattr(sys, "argv", ["gate_overhead.py", *arguments])
        module.main()
    results = json.loads(out.read_text())["results"]["mlp"]
    assert set(results) == {"eager", "memory"}
    assert set(results["eager"]) == set(results["memory"]) == set(module.VARIANTS)
    assert results["eager"]["dense"]["ratio"] == 1
    assert all(r["ms"] > 0 and r["steps"] >= 5 for r in results["eager"].values())
    assert all(r["peak MiB"] > 0 for r in results["memory"].values())


def test_small_gpt2_predicts_each_next_token(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch, _ = load("gate_overhead", monkeypatch).networks("gpt2")
    assert model(batch[:2]).shape == (2 * 64, 256)


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_kept_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("kept_memory", monkeypatch)
    given_back, kept = (module.measured("resnet20", 16, 2, keep=keep) for keep in (False, True))
    assert kept["pages"] < 0.2 * given_back["pages"]
    assert kept["peak MiB"] < 1.2 * given_back["peak MiB"]
    assert kept["milliseconds"] > 0


def test_sweep_overhead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from sweep_overhead import overhead  # by its name, because workers import it too

    numbers = overhead(tmp_path, runs=3, workers=1)
    assert numbers["runs"] == 3 and numbers["scheduling, ms a run"] > 0
    assert len(list(tmp_path.glob("nothing/*/results.json"))) == 3


def test_deployed_runs(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    common = ("--task", "digits/digits_convnet", "--epochs", 2, "--set", "data.train_images=100")
    assert cli("train", *common)[0] == 0
    assert cli("prune", *common, "--method", "mp", "--target-density", 0.3)[0] == 0
    [dense], [sparse] = Path("runs").glob("*-train-*"), Path("runs").glob("*-mp-prune-*")
    module = load("deployed_runs", monkeypatch)
    module.main(
        [str(dense), str(sparse), "--seconds", "0.01", "--threads", "1", "--out", "out.json"]
    )
    [found] = json.loads(Path("out.json").read_text())
    assert found["density"] == pytest.approx(0.3, abs=0.001) and found["max_difference"] < 1e-4
    tested = json.loads((sparse / "results.json").read_text())["stages"][-1]["test"]["accuracy"]
    dense, sparse = found["rows"]["dense, PyTorch"], found["rows"]["sparse, deployed"]
    assert sparse["accuracy"] == pytest.approx(tested) and dense["accuracy"] != sparse["accuracy"]
    assert set(sparse["images_per_second"]) == {"1", "128"}


@pytest.mark.skipif(not native.packs("avx512"), reason="no VNNI")
def test_int8(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    common = ("--task", "digits/digits_convnet", "--epochs", 1, "--set", "data.train_images=100")
    assert cli("train", *common)[0] == 0
    [run] = Path("runs").glob("*-train-*")
    module = load("int8", monkeypatch)
    monkeypatch.setattr(module, "LAYERS", [module.Layer(8, 16, (1, 8))])
    monkeypatch.setattr(module, "SECONDS", 0.001)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # would stay for other tests
    module.main(["--parts", "layers", "--out", "out.json"])
    module.main(["--parts", "runs", "--runs", f"digits={run}", "--out", "out.json"])
    found = json.loads(Path("out.json").read_text())
    assert len(found["layers"]) == 2 * len(module.DENSITIES)
    assert all(row["layers"] == 1 and row["lists"] > 0 for row in found["layers"])
    [row] = found["runs"]
    assert row["network"] == "digits" and row["int8_layers"] >= 1
    tested = json.loads((run / "results.json").read_text())["stages"][-1]["test"]["accuracy"]
    assert row["accuracy"]["fp32"] == pytest.approx(tested)
    assert row["bytes"]["int8"] < row["bytes"]["fp16"] < row["bytes"]["fp32"]
    with torch.no_grad():
        [row, _] = module.networks(["vit-64"], [0.0])
    assert row["int8_layers"] >= 16 and set(row["seconds"]) == {"fp32", "int8", "onnxruntime"}
    assert 0 < row["relative_difference"] < 0.05


def test_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Builder((2,))
    net.linear("x", 3)
    model = Deployed(net.graph(), 1).save(tmp_path / "net.prunus")
    module = load("serving", monkeypatch)
    post = module.Post(np.ones((1, 2), np.float32), protocol=True)
    with module.started(model, "prunus_runtime.serving", options=[]) as (process, port):
        calls = module.Load(port, post.content)
        asyncio.run(calls.run(clients=2, seconds=0.2))
        assert calls.answered and calls.lost == 0
        assert module.memory(process) > 1 and module.work(process) > 0


def test_deployed_speed_measures_network_by_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs fit their network, and the file keeps those that were measured before."""
    module = load("deployed_speed", monkeypatch)
    monkeypatch.setattr(module, "DEPTH", 1)
    found = {}
    for name in ("vit-64", "vit-128", "gpt-64"):
        x = module.inputs(name, 3)
        found[name] = module.network(name, 0)(torch.from_numpy(x)).shape[0], x.shape
    assert found == {
        "vit-64": (3, (3, 3, 32, 32)),
        "vit-128": (3, (3, 3, 32, 64)),
        "gpt-64": (3, (3, 64)),
    }
    padded = (module.inputs("bert-64", 9) == 0).sum(1)
    assert (padded <= 32).all() and padded.any()

    row = {"mask": "", "batch": 1, "speedup": 1}
    monkeypatch.setattr(module, "measure", lambda name, *_: [{"network": name, **row}])
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # would stay for other tests
    out = tmp_path / "out.json"
    for names in (["vit-64", "gpt-64"], ["gpt-64"], ["gpt-128"]):
        with torch.no_grad():  # which it sets for the process
            module.main(["--networks", *names, "--sparsities", "--out", str(out)])
    kept = [row["network"] for row in json.loads(out.read_text())["rows"]]
    assert kept == ["vit-64", "gpt-64", "gpt-128"]
