"""`prunus deploy`, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import prunus_runtime

TASK = [
    *("--task", "digits/digits_convnet", "--epochs", "2", "--batch-size", "25"),
    *("--set", "data.train_images=100", "--set", "engine.accelerator=cpu"),
]


def test_from_a_search_to_a_file(cli) -> None:
    cli("search", *TASK, "--rounds", "1", "--mask-init", "0", "--rewind-epoch", "1")
    (search,) = Path("runs").iterdir()
    status, _, errors = cli("deploy", search)
    assert status == 2 and "prunus retrain" in errors and "early weights" in errors
    (ticket,) = search.rglob("*.safetensors")
    cli("retrain", ticket, *TASK)
    (run,) = (folder for folder in Path("runs").iterdir() if folder != search)
    status, output, errors = cli("deploy", run, "--store", "int8", "--threads", "1")
    assert status == 0, errors
    for text in (
        "multiply-adds",
        "Largest difference",
        "stored in int8",
        "validation accuracy",
        "test",
    ):
        assert text in output
    network = prunus_runtime.load("model.prunus")
    assert network(np.zeros((2, 1, 8, 8), np.float32)).shape == (2, 10)

    status, output, errors = cli("deploy", run, "--compute", "int8", "--threads", "1", "--json")
    assert status == 0, errors
    answer = json.loads(output)
    assert answer["int8_layers"] and "deployed, in float32" in answer["milliseconds"]
    networks = ["plain", "deployed", "computes in int8", "stored in int8"]
    assert list(answer["metrics"]) == networks
    kinds = [o.kind for o in prunus_runtime.load("model.prunus").graph.operations]
    assert "quantize" in kinds


def test_what_is_no_run_and_what_does_not_go_together(cli, tmp_path: Path) -> None:
    assert "has no results.json" in cli("deploy", tmp_path)[2]
    assert "--store fp16 is for --format prunus" in cli(
        "deploy", tmp_path, "--format", "onnx", "--store", "fp16"
    )[2]  # fmt: skip
    assert "--compute int8 is for --format prunus" in cli(
        "deploy", tmp_path, "--format", "module", "--compute", "int8"
    )[2]  # fmt: skip
    assert "at least one sample" in cli("deploy", tmp_path, "--batch", "0")[2]
