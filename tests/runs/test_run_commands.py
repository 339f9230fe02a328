"""The commands, as a person types them."""

import json
import re
import signal
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from prunus import Ticket
from prunus.cli import app
from support.processes import SECONDS, meanwhile, run, started, wait_until


def small(epochs=2, batch_size=25, images=100):
    return [
        *("--task", "digits/digits_convnet", "--epochs", epochs, "--batch-size", batch_size),
        *("--set", f"data.train_images={images}", "--set", "engine.accelerator=cpu"),
    ]


SMALL = small()


def folder(output):
    return Path(re.search(r"^Run: (.+)$", output, re.M)[1])


def test_train_and_again(cli):
    status, output, _ = cli("train", *SMALL)
    assert status == 0 and "training  epoch 2/2" in output
    run = folder(output)
    assert run.parent == Path("runs")
    assert "No mask: a dense network." in cli("inspect", run / "tickets/training.safetensors")[1]
    status, again, _ = cli("train", *SMALL)
    assert status == 0 and folder(again) == run
    assert "epoch 1/2" not in again, "it was finished"
    table, finished, *_ = again.split("\n\n")
    assert table in output and finished.startswith("Finished on 20")


def stages(output):
    return json.loads((folder(output) / "results.json").read_text())["stages"]


def test_a_target_density_and_one_for_each_round(cli):
    status, output, _ = cli("search", *SMALL, "--rewind-epoch", 0, "--target-density", 0.3)
    [stage] = stages(output)
    assert status == 0 and stage["density"] == pytest.approx(0.3, abs=0.0005)
    densities = ["--target-density", 0.5, "--target-density", 0.2]
    status, output, _ = cli("search", *SMALL, "--rewind-epoch", 0, *densities)
    assert [s["density"] for s in stages(output)] == pytest.approx([0.5, 0.2], abs=0.0005)
    status, _, errors = cli("search", *SMALL, "--rounds", 1, *densities)
    assert status == 2 and "one for each of 2 rounds, but there is only 1" in errors
    status, _, errors = cli("prune", *SMALL, "--set", "method.target_density=[0.5,0.2]")
    assert status == 2 and "do more rounds, or give fewer targets" in errors


def test_a_target_density_with_other_methods(cli):
    status, output, _ = cli("prune", *SMALL, "--method", "gmp", "--target-density", 0.25)
    assert status == 0 and stages(output)[-1]["density"] == pytest.approx(0.25, abs=0.0005)
    status, _, errors = cli("prune", *SMALL, "--method", "imp", "--target-density", 0.25)
    assert status == 2 and "target_density" in errors


@pytest.mark.filterwarnings("always::prunus.PrunusWarning")
def test_set_wins_over_the_flag_and_a_file_says_how_many_rounds(cli):
    Path("mine.yaml").write_text("rounds: 2\nrewind_epoch: 0\n")
    arguments = ["search", *SMALL, "--config", "mine.yaml", "--target-density", 0.3]
    _, output, errors = cli(*arguments, "--set", "method.target_density=0.4")
    assert "prunus: warning: target_density=0.4 with 2 rounds" in errors
    assert [s["density"] for s in stages(output)] == pytest.approx([0.4, 0.4], abs=0.0005)


def test_bisection(cli):
    arguments = [*small(images=200), "--rewind-epoch", 0, "--bisect"]
    status, output, _ = cli("search", *arguments, "--target-density", 0.5)
    assert status == 0 and "Bisection for 50.00%" in output
    assert len(stages(output)) == 1, "one round unless more are asked for"
    assert len(list(Path("runs").iterdir())) >= 2
    status, _, errors = cli("search", *arguments)
    assert status == 2 and "--bisect needs one --target-density" in errors
    near = ["--target-density", "50%", "--tolerance", 0.5, "--json"]
    status, output, _ = cli("search", *arguments, *near)
    found = json.loads(output)["bisection"]
    assert status == 0 and found["setting"] == "mask_init" and found["best"] in found["trials"]
    status, _, errors = cli("search", *SMALL, "--target-density", 0.5, "--tolerance", 0.1)
    assert status == 2 and "--at-once and --tolerance are for --bisect" in errors


def test_search_retrain_inspect(cli):
    status, output, _ = cli(
        "search", *SMALL, "--mask-init", "0.01", "--rounds", 2, "--seed", 3, "--rewind-epoch", 1
    )
    assert status == 0
    path = folder(output) / "tickets" / "round-2.safetensors"
    ticket = Ticket.load(path)
    assert ticket.manifest.seed == 3 and ticket.manifest.settings["mask_init"] == 0.01
    status, output, _ = cli("inspect", path)
    assert status == 0 and re.search("method +cs\nsettings .*mask_init=0.01, ", output)
    own = ["--epochs", "2", "--batch-size", "25", "--set", "data.train_images=100"]
    status, output, _ = cli("retrain", path, *own)
    assert status == 0 and "re-training" in output and "Not transferred" not in output
    assert "weights are from epoch 1 of 2: re-trained for the 1 that are left" in output
    Path("mine_for_cli.py").write_text(
        "from prunus.tasks import load_task\n"
        "def task(root, options): return load_task('digits/digits_convnet', root, options)\n"
    )
    status, output, _ = cli("retrain", path, "--task", "mine_for_cli:task", *own)
    assert status == 0 and "that are left" not in output
    assert "Not transferred, and so trained from random values:\n  15.weight (class" in output


def test_select_and_the_density_of_the_whole_network(cli):
    arguments = ["prune", "--task", "digits/lenet", *SMALL[2:], "--method", "mp"]
    status, output, _ = cli(*arguments, "--target-density", 0.25, "--select", "paper")
    stage = stages(output)[-1]
    # LeNet for these images: 150 + 2,400 weights of convolutions among 21,386 in all.
    assert status == 0 and re.search(r"kept +of network +validation", output)
    assert stage["network_density"] == pytest.approx(1 - 0.75 * 2_550 / 21_386, abs=0.001)
    assert "Only 11.92% of the network's weights could be removed" in output
    status, output, _ = cli(*arguments, "--target-density", 0.25, "--select", "all")
    assert stages(output)[-1]["network_density"] == pytest.approx(0.26, abs=0.01)
    assert status == 0 and "could be removed" not in output
    selected = ["--select", "conv", "--select", "*.bias"]
    status, output, _ = cli(*arguments, *selected, "--target-density", 0.25)
    settings = (folder(output) / "settings.yaml").read_text()
    assert status == 0 and "select:\n  - conv\n  - '*.bias'" in settings
    excluded = ["--select", "all", "--exclude", "7.*", "--exclude", "9.*"]
    status, output, _ = cli(*arguments, *excluded, "--target-density", 0.25)
    # Without two of the linear layers: 150 + 2,400 + 84 * 10 weights.
    assert stages(output)[-1]["network_density"] == pytest.approx(
        1 - 0.75 * 3_390 / 21_386, abs=0.001
    )


def test_by_default_the_kind_of_network_decides(cli):
    arguments = [*SMALL[2:], "--method", "mp", "--target-density", 0.25]
    status, output, _ = cli("prune", "--task", "digits/lenet", *arguments)
    assert status == 0 and "select: auto" in (folder(output) / "settings.yaml").read_text()
    # All but the last layer: 150 + 2,400 + 64 * 120 + 120 * 84 weights.
    expected = 1 - 0.75 * 20_310 / 21_386
    assert stages(output)[-1]["network_density"] == pytest.approx(expected, abs=0.001)
    status, output, _ = cli("prune", "--task", "digits/digits_convnet", *arguments)
    assert status == 0 and "select: paper" in (folder(output) / "settings.yaml").read_text()


def test_threads(cli, monkeypatch):
    used = []
    monkeypatch.setattr("torch.set_num_threads", used.append)
    monkeypatch.setattr("prunus.sweeps.executors.local.available_cores", lambda: 8)
    for arguments in ([], ["--threads", 3]):
        assert cli("train", *SMALL, *arguments)[0] == 0
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert cli("train", *SMALL)[0] == 0
    assert used == [3, 4], "a choice in the environment, on the command line, half of the cores"
    status, _, errors = cli("train", *SMALL, "--threads", 0)
    assert status == 2 and "--threads 0: a process has from 1 to 1024 threads" in errors


def test_prune_with_a_file(cli):
    Path("run.yaml").write_text("task: digits/digits_convnet\nseed: 5\nmethod: {mask_init: 0.5}\n")
    arguments = [*SMALL, "--config", "run.yaml", "--out", "elsewhere", "--mask-init", "0.01"]
    status, output, _ = cli("prune", *arguments)
    assert status == 0 and "fine-tuning" in output
    settings = (folder(output) / "settings.yaml").read_text()
    assert folder(output).parent == Path("elsewhere")
    assert "seed: 5" in settings and "mask_init: 0.01" in settings


def test_null_is_a_value_and_settings_can_be_replayed(cli):
    arguments = ["--task", "digits/digits_convnet", "--set", "checkpoint_every=null"]
    short = ["--set", "recipe.drops=[1]", "--batch-size", 50, "--set", "data.train_images=50"]
    status, output, _ = cli("train", *arguments, "--recipe", "tickets", "--epochs", 2, *short)
    assert status == 0
    path = folder(output) / "settings.yaml"
    content = path.read_text()
    assert "checkpoint_every: null" in content and "commit_epoch: null" in content
    status, again, _ = cli("train", "--config", path)
    assert status == 0 and folder(again) == folder(output)
    assert path.read_text() == content


def test_a_recipe_by_name_in_a_file_and_a_flag(cli):
    Path("run.yaml").write_text("recipe: pruning\n")
    _, output, _ = cli("train", *SMALL, "--config", "run.yaml")
    assert "commit_epoch: 1\n" in (folder(output) / "settings.yaml").read_text()
    assert "fine_tune_lr: 0.001\n" in (folder(output) / "settings.yaml").read_text()


def test_trackers(cli):
    status, output, _ = cli("train", *SMALL, "--track", "tensorboard")
    assert status == 0 and list((folder(output) / "tensorboard").glob("events.*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--task", "cifar10/resnet20"], "Run the same command with --download"),
        (["train", *SMALL, "--set", "recipe.epoch=2"], "Did you mean 'epochs'?"),
        (["search", *SMALL, "--method", "css"], "Did you mean 'cs'?"),
        (["retrain", "absent.safetensors"], "cannot read the ticket absent.safetensors"),
        (["inspect", "absent.safetensors"], "cannot read the ticket absent.safetensors"),
        (["train", *SMALL, "--config", "absent.yaml"], "cannot read the settings absent.yaml"),
    ],
)
def test_errors_are_messages(cli, arguments, message):
    status, _, errors = cli(*arguments)
    assert status == 2
    assert errors.startswith("prunus: ") and message in errors and "Traceback" not in errors


@pytest.mark.filterwarnings("always::prunus.PrunusWarning")
def test_a_damaged_checkpoint_is_reported(cli):
    _, output, _ = cli("train", *SMALL)
    run = folder(output)
    (run / "results.json").unlink()
    max((run / "checkpoints").iterdir()).write_bytes(b"")
    status, output, errors = cli("train", *SMALL)
    assert status == 0 and "resuming training after step 4 of 8" in output
    assert errors.startswith("prunus: warning: ") and "using the one before it" in errors


def test_missing_data_are_downloaded_on_request(cli, monkeypatch):
    asked = []
    monkeypatch.setattr("prunus.tasks.data.download", lambda *where: asked.append(where))
    status, _, _ = cli("train", "--task", "cifar10/resnet20", "--data", "there", "--download")
    assert status == 2 and asked == [("cifar10", Path("there"))]


def test_help_names_every_command():
    names = {name for name in app if not name.startswith("-")}
    runs = {"train", "search", "prune", "retrain", "sweep", "reproduce"}
    listing = {"tasks", "methods", "runs"}
    assert names == {"demo", "inspect", "report", "deploy"} | runs | listing


# In processes of their own


# Seven steps per epoch: the processes, which meet every ten steps, stop in the middle of one.
TOGETHER = [
    *("search", *small(epochs=8, batch_size=20, images=140), "--devices", "2"),
    *("--rounds", "2", "--mask-init", "0.01"),
]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """A search in two processes that is not interrupted."""
    where = tmp_path_factory.mktemp("together")
    return where / folder(run("-m", "prunus", *TOGETHER, cwd=where))


def test_sigterm_to_two_processes_and_resuming(together, tmp_path):
    metrics = tmp_path / "runs" / together.name / "metrics.jsonl"
    with started("-m", "prunus", *TOGETHER, cwd=tmp_path) as process:
        wait_until(lambda: metrics.exists() and metrics.stat().st_size, process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 143, errors
    assert "stopped by SIGTERM after writing a checkpoint; the same command resumes" in errors
    output = run("-m", "prunus", *TOGETHER, cwd=tmp_path)
    assert "resuming round" in output
    own = tmp_path / folder(output)
    for name in ("metrics.jsonl", "results.json"):
        assert (own / name).read_bytes() == (together / name).read_bytes()


def test_ctrl_c(cli, ctrl_c):
    with meanwhile(lambda: list(Path().glob("runs/*/metrics.jsonl")), ctrl_c):
        status, _, errors = cli("train", *small(epochs=500))
    assert status == 130
    assert "prunus: stopped by SIGINT after writing a checkpoint" in errors
    assert "Traceback" not in errors


def test_image_files_in_two_processes(tmp_path):
    image = PIL.Image
    generator = np.random.default_rng(0)
    for part, count in (("train", 6), ("val", 2)):
        for name in ("cat", "dog"):
            (tmp_path / "tree" / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(0, 256, (40, 48, 3), dtype=np.uint8)
                image.fromarray(pixels).save(tmp_path / "tree" / part / name / f"{number}.jpg")
    output = run(
        *("-m", "prunus", "search", "--task", "image-folder/resnet20", "--data", "tree"),
        *("--epochs", "1", "--batch-size", "4", "--rounds", "1", "--rewind-epoch", "0"),
        *("--devices", "2", "--workers", "2", "--set", "data.image_size=32"),
        *("--set", "engine.accelerator=cpu", "--set", "data.validation_images=4"),
        cwd=tmp_path,
    )
    results = json.loads((tmp_path / folder(output) / "results.json").read_text())
    [stage] = results["stages"]
    assert results["finished"] and len(stage["layers"]) == 19
    [line] = (tmp_path / folder(output) / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["step"] == 2
