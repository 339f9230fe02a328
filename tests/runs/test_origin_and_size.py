"""What stands beside the values: the size of a network, samples it was judged on, its origin."""

import json

import torch
from torch import nn

import prunus
from prunus.runs.origin import ORIGIN, Stopwatch, read_origin
from prunus.runs.size import Size


def test_size_by_hand():
    """A convolution computed at four places, a linear layer at one, and what no mask covers."""
    model = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), nn.Flatten(), nn.Linear(8, 1))
    masks = {"0.weight": torch.tensor([True, False]).reshape(2, 1, 1, 1),
             "2.weight": torch.tensor([[True] + 7 * [False]])}  # fmt: skip
    prunus.Mask(masks).apply(model)
    size = Size(model)
    model(torch.zeros(3, 1, 2, 2))
    of_all, macs, effective = size.found()
    assert of_all == 3 / 11, "two weights and the bias, of 2 + 8 + 1"
    assert macs == (4 + 1) / (2 * 4 + 8)
    assert effective == 2 / 10, "the one weight of the linear layer reads the one channel"
    hooks = [(m._forward_hooks, m._forward_pre_hooks) for m in model.modules()]
    assert not any(any(pair) for pair in hooks)


def test_size_without_a_mask_or_without_data():
    assert Size(nn.Linear(2, 2)).found() == (1.0, None, None)
    model = nn.Linear(2, 1, bias=False)
    prunus.Mask({"weight": torch.tensor([[True, False]])}).apply(model)
    assert Size(model).found() == (0.5, None, None)
    assert not model._forward_hooks and not model._forward_pre_hooks


def test_origin_adds_up_the_time_of_all_sessions(tmp_path, monkeypatch):
    clock = iter([100.0, 107.0, 200.0, 205.0])
    monkeypatch.setattr("prunus.runs.origin.time.monotonic", lambda: next(clock))
    Stopwatch(tmp_path, torch.device("cpu")).write()
    assert read_origin(tmp_path).seconds == 7
    Stopwatch(tmp_path, torch.device("cpu")).write()
    origin = read_origin(tmp_path)
    assert origin.seconds == 12
    assert origin.torch == torch.__version__ and origin.cores >= 1 and origin.processor
    (tmp_path / ORIGIN).write_text("{")
    assert read_origin(tmp_path) is None and read_origin(tmp_path / "none") is None


def test_a_run_writes_all_of_it(prunus_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, errors = prunus_command(
        "prune", "--task", "digits/digits_convnet", "--epochs", 2, "--method", "gmp",
        "--set", "data.train_images=50", "--set", "engine.accelerator=cpu", "--batch-size", 25,
        "--target-density", 0.1, "--threads", 1,
    )  # fmt: skip
    assert status == 0, errors
    [folder] = (tmp_path / "runs").iterdir()
    stage = json.loads((folder / "results.json").read_text())["stages"][-1]
    assert stage["samples"] == {"validation": 200, "test": 797}
    assert 0.1 < stage["network_density"] < 0.2 and 0 < stage["kept_macs"] < 1
    assert 0 < stage["effective_density"] <= stage["density"]
    origin = read_origin(folder)
    assert origin.seconds > 0 and origin.threads == 1 and ", threads: 1, " in origin.machine
