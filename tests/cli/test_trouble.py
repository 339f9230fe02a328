"""What the operating system refuses: one line that says so, nothing lost, and the same command."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from prunus import Mask, SettingError, Ticket
from prunus.cli.options import need
from prunus.errors import in_words
from prunus.sweeps.executors.cluster import dask_executor
from prunus.tasks.data import DamagedDataError, DataOptions
from prunus.tasks.data.image_tree import read_tree
from prunus.tasks.losses import IGNORED, cross_entropy, token_cross_entropy
from prunus.tasks.metrics import accuracy
from prunus.training import Trainer
from prunus.training.folder_lock import FolderLock

Command = Callable[..., tuple[int, str, str]]
TRAIN = ["train", "--task", "digits/digits_convnet", "--epochs", 2, "--batch-size", 25]
TRAIN += ["--set", "data.train_images=50", "--set", "checkpoint_every=1"]


def content(folder: str) -> dict[Path, bytes]:
    """What a run found, without what it needed to find it."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    found = {path.relative_to(folder): path.read_bytes() for path in files}
    kept = ("results.json", "metrics.jsonl")
    return {p: data for p, data in found.items() if p.name in kept or p.suffix == ".safetensors"}


@contextmanager
def failing_fsync(monkeypatch: pytest.MonkeyPatch, at: int, number: int) -> Iterator[None]:
    """Fails once, as a full disk does: at the write number `at`, and with it the file."""
    real, calls = os.fsync, list[int]()

    def fsync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # folders need not be synchronised
            calls.append(descriptor)
            if len(calls) == at:
                raise OSError(number, os.strerror(number))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield


def one_line(errors: str) -> bool:
    return errors.startswith("prunus: ") and errors.count("\n") == 1


def test_a_full_disk_at_every_write(cli: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli(*TRAIN, "--out", "whole")[0] == 0
    at, status = 0, 1
    while status:
        at += 1
        out = ["--out", f"full-{at}"]
        with failing_fsync(monkeypatch, at, errno.ENOSPC):
            status, _, errors = cli(*TRAIN, *out)
        if status:
            assert status == 1 and one_line(errors) and "the disk is full" in errors, errors
            assert "make room, and run the same command" in errors
            again, _, errors = cli(*TRAIN, *out)
            assert again == 0, errors
        assert content(out[1]) == content("whole")
    assert at > 10, "every write of the run has failed once"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT])
def test_other_refusals(cli: Command, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    with failing_fsync(monkeypatch, 4, number):
        status, _, errors = cli(*TRAIN)
    assert status == 1 and one_line(errors), errors
    assert "What was written before is whole" in errors


def test_a_place_that_is_no_folder(cli: Command) -> None:
    Path("dead").symlink_to("nowhere")
    status, _, errors = cli(*TRAIN, "--out", "dead")
    assert status == 1 and one_line(errors) and "a link that leads nowhere" in errors


def test_links_in_a_circle(cli: Command) -> None:
    Path("loop").symlink_to("loop")
    Path("sweep.yaml").write_text("{name: a, tasks: digits/digits_convnet, rows: [{method: cs}]}")
    commands = (["sweep", "sweep.yaml", "--out", "loop"], [*TRAIN, "--out", "loop"])
    for command in (*commands, ["report", "loop"], ["inspect", "loop"], ["deploy", "loop"]):
        status, _, errors = cli(*command)
        assert status in (1, 2) and one_line(errors) and "loop" in errors, errors


def test_a_full_disk_is_named_by_the_file_that_was_asked_for(
    cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli(*TRAIN)[0] == 0
    [run] = Path("runs").iterdir()
    with failing_fsync(monkeypatch, 1, errno.ENOSPC):
        status, _, errors = cli("deploy", run, "--out", "small.prunus")
    assert status == 1 and "the disk is full at small.prunus" in errors, errors
    Path("full").mkdir()
    (Path("full") / ".lock").symlink_to("/dev/full")
    with pytest.raises(OSError) as raised:
        FolderLock(Path("full")).acquire()
    assert raised.value.filename == "full/.lock"


def test_files_are_named() -> None:
    assert in_words(OSError(errno.ENOSPC, "No space", "runs/x")).startswith(
        "the disk is full at runs/x. What"
    )
    assert "not allowed to use runs/x (Read-only file system)" in in_words(
        OSError(errno.EROFS, "Read-only file system", "runs/x")
    )
    assert in_words(OSError("odd")) == "odd. What was written before is whole"


def test_a_folder_that_is_moved_away(cli: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli(*TRAIN, "--out", "whole")[0] == 0
    forward, calls = Trainer._forward_backward, []

    def moving(self: Trainer, batch: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            Path("runs").rename("elsewhere")
        return forward(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_forward_backward", moving)
        status, _, errors = cli(*TRAIN)
    assert status == 1 and one_line(errors) and "was moved or deleted" in errors, errors
    assert not Path("runs").exists(), "nothing was written to a new folder"
    Path("elsewhere").rename("runs")
    status, output, errors = cli(*TRAIN)
    assert status == 0 and "resuming training after step 2 of 4" in output, errors
    assert content("runs") == content("whole")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_is_moved_while_it_is_written_to(
    cli: Command, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    real = os.fsync

    def moving(descriptor: int) -> None:
        real(descriptor)
        if Path("runs").exists() and next(Path("runs").glob("*/checkpoints/.*"), None):
            [run] = Path("runs").iterdir()
            run.rename("elsewhere")
            if replaced:
                run.touch()

    monkeypatch.setattr(os, "fsync", moving)
    status, _, errors = cli(*TRAIN)
    assert status == 1 and one_line(errors) and "was moved or deleted" in errors, errors


@pytest.mark.parametrize("arguments", [TRAIN, ["inspect", "ticket"]])
def test_a_reader_that_goes_away(
    cli: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[object]
) -> None:
    Ticket(Mask({}), {"weight": torch.zeros(1)}).save("ticket")
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", os.fdopen(writer, "w"))
        status, _, errors = cli(*arguments)
    assert status == 1 and one_line(errors) and "what read our output is gone" in errors, errors
    assert cli(*arguments)[0] == 0


@pytest.mark.parametrize("arguments", [["tasks"], ["inspect", "nothere"]])
def test_nobody_listens(
    cli: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """As with `>&-` or in a service that has closed its descriptors."""
    for closed in (["stdout"], ["stderr"], ["stdout", "stderr"]):
        with monkeypatch.context() as patch:
            for name in closed:
                patch.setattr(sys, name, None)
            status, output, errors = cli(*arguments)
        assert status == 2 * (arguments != ["tasks"])
        assert "prunus: " not in output
        assert "Traceback" not in errors


def test_labels_that_the_network_has_no_output_for() -> None:
    output, labels = torch.zeros(2, 3), torch.tensor([0, 3])
    for loss in (cross_entropy, token_cross_entropy):
        with pytest.raises(SettingError, match=r"labels are from 0 to 3, .* classes 0 to 2"):
            loss(output, (None, labels))
    for wrong in (labels, labels - 1):
        with pytest.raises(SettingError, match="number the classes from 0"):
            accuracy.measure(output, (None, wrong))
    assert accuracy.measure(output, (None, torch.tensor([0, IGNORED]))).tolist() == [1, 2]


def test_images_that_are_links_to_nowhere(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(10):
            (tmp_path / name / f"{number}.png").touch()
    (tmp_path / "b" / "10.png").symlink_to("nowhere.png")
    with pytest.raises(DamagedDataError, match=r"b/10\.png: a link that leads nowhere"):
        read_tree(tmp_path, DataOptions()).fingerprint()


def test_a_cluster_without_certificates() -> None:
    with (
        pytest.raises(SettingError, match=r"tls://localhost:1: .*names no certificates"),
        dask_executor("tls://localhost:1"),
    ):
        pass


def test_certificates_that_are_not_there() -> None:
    dask = pytest.importorskip("dask")
    named = ("ca-file", "client.cert", "client.key")
    with (
        dask.config.set({f"distributed.comm.tls.{name}": "nowhere.pem" for name in named}),
        pytest.raises(SettingError, match=r"cannot read the certificates \(distributed.comm.tls\)"),
        dask_executor("tls://localhost:1"),
    ):
        pass


def test_an_address_without_the_encryption_that_is_required() -> None:
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.comm.require-encryption": True}),
        pytest.raises(SettingError, match=r"tcp://localhost:1: .* begins with tls://"),
        dask_executor("tcp://localhost:1"),
    ):
        pass


@pytest.mark.parametrize("command", [["demo"], ["report", "runs"], ["reproduce", "figure3"]])
def test_missing_packages_are_told_before_any_work(
    cli: Command, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    status, output, errors = cli(*command)
    assert status == 2 and one_line(errors) and "not installed: altair. Run pip install" in errors
    assert output == "" and not Path("demo").exists() and not Path("runs").exists()
    need("report", "vl_convert")


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "--rewind-epoch", 9],
        ["search", "--select", "nothing.*"],
        ["search", "--target-density", 0.5, "--target-density", 0.2, "--rounds", 1],
        ["search", "--mask-init", 0.1, "--target-density", 0.2],
        ["prune", "--method", "gmp", "--target-density", 0],
        ["prune", "--target-macs", 1e-7],
        ["search", "--method", "mp", "--target-macs", 1e-7, "--rounds", 1],
        ["prune", "--method", "l0", "--target-density", "10%", "--bisect", "--tolerance", 0],
        ["prune", "--method", "amc", "--set", "data.validation_images=0"],
        ["train", "--track", "wandb"],
        ["retrain", "ticket"],
    ],
)
def test_a_command_that_is_refused_leaves_no_folder(cli: Command, arguments: list[object]) -> None:
    Ticket(Mask({}), {"weight": torch.zeros(1)}).save("ticket")
    status, _, errors = cli(*arguments, *TRAIN[1:])
    assert status == 2 and errors.startswith("prunus: "), errors
    assert [path.name for path in Path().iterdir()] == ["ticket"]
