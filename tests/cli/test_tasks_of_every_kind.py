"""The commands on tasks that are not the classification of images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

KINDS = {
    "diabetes/mlp": ("RMSE", "prunus", ["--epochs", "2"]),
    "shapes/unet": ("mean IoU", "module", ["--epochs", "2", "--set", "data.train_images=64"]),
    "text/gpt-char": ("loss", "prunus", ["--epochs", "2", "--set", "data.train_images=256"]),
}


@pytest.mark.parametrize("task", KINDS)
def test_prune_report_and_deploy(cli, task: str) -> None:
    metric, format, small = KINDS[task]
    status, output, errors = cli("prune", "--task", task, "--target-density", "0.5", *small)
    assert status == 0, errors
    (run,) = Path("runs").iterdir()
    results = json.loads((run / "results.json").read_text())
    assert results["metrics"][0]["name"] == metric
    assert set(results["stages"][-1]["test"]) == {m["name"] for m in results["metrics"]}
    assert results["stages"][-1]["density"] == pytest.approx(0.5, abs=1e-3)
    unit = results["metrics"][0]["unit"]
    assert unit in output
    status, output, errors = cli("train", "--task", task, *small)
    assert status == 0, errors
    status, output, errors = cli("report", "runs")
    assert status == 0 and metric in output, errors
    status, output, errors = cli("deploy", run, "--batch", "2", "--threads", "1")
    assert status == 0, errors
    assert f"test {metric}" in output
    assert Path("model.prunus" if format == "prunus" else "model.pt2").exists()
