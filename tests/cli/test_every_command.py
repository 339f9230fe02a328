"""What holds for every command: JSON, exit codes, refusals that leave nothing, completion."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prunus.cli import app
from prunus.methods import METHODS

Command = Callable[..., tuple[int, str, str]]
COMMANDS = {name for name in app if not name.startswith("-")}
TASK = "--task digits/digits_convnet"
SMALL = "--epochs 2 --batch-size 25 --set data.train_images=50"
EXPERIMENT = """\
{name: a, tasks: digits/digits_convnet, dense: false, rows: [{command: train}],
 settings: {recipe: {epochs: 1}, data: {train_images: 50}}}
"""


@pytest.fixture
def prepared(cli: Command) -> Command:
    """A folder with a ticket, the run that it is from, and an experiment."""
    search = f"search {TASK} {SMALL} --rounds 1 --rewind-epoch 1 --target-density 20%"
    assert cli(*search.split())[0] == 0
    [run] = Path("runs").iterdir()
    Path("ticket").write_bytes((run / "tickets/round-1.safetensors").read_bytes())
    run.rename("run")
    Path("runs").rmdir()
    Path("experiment.yaml").write_text(EXPERIMENT)
    return cli


# Results for programs

ANSWERED = [
    f"train {TASK} {SMALL}",
    f"search {TASK} {SMALL} --rounds 1 --rewind-epoch 0",
    f"prune {TASK} {SMALL} --target-density 10%",
    f"retrain ticket {SMALL}",
    "sweep experiment.yaml --workers 1",
    "report run",
    "reproduce --list",
    "inspect ticket",
    "deploy trained --threads 1",
    "tasks",
    "methods",
    "methods cs",
    "runs run",
]
LISTS = ("inspect", "tasks", "methods", "runs")
"""What these print is all a result: with --json they have no messages."""


def test_with_json_every_command_prints_one_document_and_nothing_else(prepared: Command) -> None:
    assert {typed.split()[0] for typed in ANSWERED} == COMMANDS - {"demo"}, "it has its own tests"
    prepared(*f"train {TASK} {SMALL} --out trained".split())
    [trained] = Path("trained").iterdir()
    for typed in ANSWERED:
        words = typed.replace("deploy trained", f"deploy {trained}").split()
        status, output, errors = prepared(*words, "--json")
        assert status == 0, errors
        assert json.loads(output), typed
        if words[0] in LISTS:
            assert errors == "", typed
            errors = prepared(*words)[1]
        steps = re.findall(r"^Next: (.*)$", errors, re.MULTILINE)
        assert len(steps) == 1, f"{typed}: {errors}"
        works_when_copied(steps[0], prepared)


def works_when_copied(typed: str, cli: Command) -> None:
    """What trains or serves is only read, the rest is done."""
    program, *words = shlex.split(typed)
    if program == "prunus":
        called, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        paths = [value for value in bound.args if isinstance(value, Path)]
        assert all(path.exists() for path in paths), typed
        if called.__name__ in ("report", "runs", "methods", "inspect"):
            assert cli(*words)[0] == 0, typed
    else:
        assert words[:3] == ["-m", "prunus_runtime", "serve"] and Path(words[3]).exists(), typed


def test_the_next_step_can_be_copied_where_the_environment_is_not_activated(
    cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `make demo`, or `.venv/bin/prunus demo`."""
    programs = Path(".venv/bin")
    programs.mkdir(parents=True)
    for name in ("prunus", "python"):
        (programs / name).symlink_to("/bin/true")
    monkeypatch.setattr(sys, "executable", str(Path.cwd() / programs / "python"))

    def step() -> str:
        return cli("tasks")[1].splitlines()[-1]

    assert step().startswith("Next: .venv/bin/prunus train --task")
    monkeypatch.setenv("PATH", str(Path.cwd() / programs))
    assert step().startswith("Next: prunus train --task")
    (programs / "prunus").unlink()
    monkeypatch.setenv("PATH", "/nowhere")
    assert step().startswith("Next: prunus train --task"), "there is nothing better"


@pytest.mark.parametrize("order", ["report run --json found.json", "report --json found.json run"])
def test_json_of_a_report_in_a_file(prepared: Command, order: str) -> None:
    status, output, errors = prepared(*order.split(), "--csv", "table.csv")
    assert status == 0, errors
    assert "Results: found.json" in output and json.loads(Path("found.json").read_text())
    assert Path("table.csv").exists()
    again, output, _ = prepared("report", "found.json")
    assert again == 0 and "Next:" not in output, "there is no folder to look into"


# Refusals

REFUSED = [
    *(
        f"{command} {SMALL} {wrong}"
        for command in ("train", "search", "prune", "retrain ticket")
        for wrong in (
            "--task digits/nope", "--task nope/resnet20", "--task nope", "--task nope:build",
            "--task os:path", "--task cifar10/resnet20 --data nowhere", f"{TASK} --set nope=1",
            f"{TASK} --set recipe.lr=-1", f"{TASK} --config nope.yaml", f"{TASK} --recipe nope",
            f"{TASK} --track wandb", f"{TASK} --threads 0", f"{TASK} --devices 0",
        )
    ),
    *(
        f"{command} {TASK} {SMALL} {wrong}"
        for command in ("search", "prune")
        for wrong in (
            "--method nope", "--method os:path", "--target-density 120%", "--target-density x",
            "--target-density 0.00001", "--target-macs 0.00001", "--target-speedup 1e9",
            "--method gmp --mask-init 1", "--select nope", "--bisect", "--set method.nope=1",
        )
    ),
    "train", "search", "prune", "retrain", "retrain nope", "retrain experiment.yaml",
    f"retrain ticket {SMALL} --control magnitude",
    f"search {TASK} --rounds 0", f"search {TASK} --rewind-epoch 999", "search --rates-of nope",
    "sweep", "sweep nope", "sweep run", "sweep experiment.yaml --scale nope",
    "sweep experiment.yaml --workers 0", "sweep experiment.yaml --known nope.json",
    "sweep comparison --data nowhere",
    "report", "report nope", "report experiment.yaml", "report run --margin -1",
    "reproduce nope", "reproduce table1 --scale nope", "reproduce table1 --data nowhere",
    "demo --scale nope", "demo --workers 0",
    "inspect", "inspect nope", "inspect experiment.yaml",
    "deploy", "deploy nope", "deploy run", "deploy ticket", "deploy ticket --format nope",
    "deploy ticket --threads 0", "deploy ticket --batch 0", "deploy ticket --task nope/x",
    "methods nope", "methods os:path", "runs nope", "runs experiment.yaml", "tasks nope",
]  # fmt: skip


def test_what_is_refused_leaves_nothing_and_says_why_in_words(prepared: Command) -> None:
    assert {typed.split()[0] for typed in REFUSED} == COMMANDS
    before = set(Path().rglob("*"))
    for typed in REFUSED:
        status, output, errors = prepared(*typed.split(), "--json")
        assert (status, output) == (2, ""), f"{typed}: {output}{errors}"
        assert errors.startswith("prunus: ") and "Traceback" not in errors, f"{typed}: {errors}"
        assert set(Path().rglob("*")) == before, typed


# Rounds that find nothing new


@pytest.mark.filterwarnings("default::prunus.PrunusWarning")
def test_methods_that_decide_once_have_one_round(cli: Command) -> None:
    once = {name for name, method in METHODS.items() if method.decides_once}
    assert {"cts", "acdc", "snip", "synflow", "wanda", "gmp", "mp", "random", "amc"} == once
    typed = [*f"search {TASK} {SMALL} --rewind-epoch 0 --method cts --json".split()]
    status, output, errors = cli(*typed)
    assert status == 0 and len(json.loads(output)["stages"]) == 1, errors
    status, output, errors = cli(*typed, "--rounds", 3)
    assert status == 0 and len(json.loads(output)["stages"]) == 3
    assert "prunus: warning: cts decides its mask in one round: the other 2 of 3 train" in errors


# Completion

ASK = """
. "$HOME/.bashrc"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
$(complete -p prunus | sed 's/.*-F \\([^ ]*\\).*/\\1/') prunus "${@: -1}" "${@: -2:1}"
echo "${COMPREPLY[@]}"
"""


def test_bash_completes_what_was_installed(tmp_path: Path) -> None:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    user = {**os.environ, "HOME": str(tmp_path), "PATH": programs}
    install = ["prunus", "--install-completion", "--shell", "bash"]
    subprocess.run(install, env=user, check=True, capture_output=True)

    def completed(*words: str) -> set[str]:
        asked = ["bash", "--norc", "-c", ASK, "bash", "prunus", *words]
        answer = subprocess.run(
            asked, env=user, cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return set(answer.stdout.split())

    assert completed("") == COMMANDS
    assert completed("re") == {"report", "reproduce", "retrain"}
    assert completed("search", "--target") == {
        "--target-density", "--target-macs", "--target-speedup",
    }  # fmt: skip
    assert completed("deploy", "--format", "") == {"prunus", "onnx", "module"}
    (tmp_path / "my.ticket").touch()
    assert completed("inspect", "my") == {"my.ticket"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_what_was_installed(tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs the program {shell}")
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = {
        "HOME": str(tmp_path),
        "ZDOTDIR": str(tmp_path),
        "XDG_CONFIG_HOME": f"{tmp_path}/.config",
    }
    user = {**os.environ, **home, "PATH": programs, "TERM": "dumb"}
    (tmp_path / ".zshrc").write_text("autoload -Uz compinit && compinit -u\n")  # as people have it
    install = ["prunus", "--install-completion", "--shell", shell]
    subprocess.run(install, env=user, check=True, capture_output=True)

    def completed(typed: str) -> str:
        if shell == "fish":
            asked = ["fish", "-c", f"complete --do-complete '{typed}'"]
            return subprocess.run(
                asked, env=user, cwd=tmp_path, check=True, capture_output=True, text=True
            ).stdout
        return typed_on_a_terminal([shell, "-i"], f"{typed}\t\t", user, tmp_path)

    assert "search" in completed("prunus sea")
    assert "--target-density" in completed("prunus search --target-")
    assert "magnitude" in completed("prunus retrain --control ma")


def typed_on_a_terminal(words: list[str], keys: str, user: dict[str, str], folder: Path) -> str:
    """What a shell shows for keys, until it has shown nothing for two seconds."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        words, stdin=its, stdout=its, stderr=its, cwd=folder, env=user, start_new_session=True
    ) as process:
        try:
            _shown(ours)  # the prompt
            os.write(ours, keys.encode())
            return _shown(ours)
        finally:
            process.kill()
            os.close(ours)
            os.close(its)


def _shown(terminal: int) -> str:
    shown, wait = b"", 60.0  # for the first sign of life, on a busy machine
    while select.select([terminal], [], [], wait)[0]:
        shown += os.read(terminal, 4096)
        wait = 2.0
    return shown.decode()
