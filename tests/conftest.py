"""Settings of all tests."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Tests run in two processes on two cores: each has one thread, and so have the processes that they
# start. Libraries read this when they are loaded.
os.environ["OMP_NUM_THREADS"] = "1"

import torch

torch.set_num_threads(1)
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of processes as well

# A busy machine is slow, which is no fault of what is tested.
hypothesis.settings.register_profile(
    "prunus", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("prunus")


def pytest_configure(config: pytest.Config) -> None:
    # Not in pyproject.toml: there it would import prunus before its coverage is measured.
    config.addinivalue_line("filterwarnings", "error::prunus.PrunusWarning")
    # Networks of a few dozen weights have most of them in their classifier.
    config.addinivalue_line("filterwarnings", "ignore::prunus.errors.SelectionWarning")
    # Rounds of six steps on a handful of weights are just what these warn of.
    config.addinivalue_line("filterwarnings", "ignore::prunus.errors.SearchWarning")


Command = Callable[..., tuple[int, str, str]]

SMALL_RUN = {
    "task": "digits/digits_convnet",
    "recipe": {"epochs": 2, "batch_size": 25},
    "data": {"train_images": 100},
    "engine": {"accelerator": "cpu"},
}


@pytest.fixture
def prunus_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `prunus ARGUMENTS` in this process; returns status, output and errors."""
    from prunus.cli import main

    programs = str(Path(sys.executable).parent)  # as if the environment were activated
    monkeypatch.setenv("PATH", programs, prepend=os.pathsep)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["prunus", *map(str, arguments)])
        status = 0
        try:
            main()
        except SystemExit as exit:
            status = int(exit.code or 0)
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def cli(prunus_command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """`prunus_command` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return prunus_command


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[], None]]:
    """Ctrl-C for this process, which hears it even if the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def trust() -> Iterator[Callable[..., None]]:
    """Trusts names of code until the test is over."""
    from prunus import trusting

    with ExitStack() as stack:
        yield lambda *names: stack.enter_context(trusting(*names))


@pytest.fixture
def settle(tmp_path: Path) -> Callable[..., Any]:
    """Settings and task of a small run on digits."""
    from prunus.runs import resolve

    def settle(command: str, /, **given: Any) -> Any:
        return resolve(command, {**SMALL_RUN, "out": str(tmp_path / "runs"), **given})

    return settle


@pytest.fixture
def perform(settle: Callable[..., Any]) -> Callable[..., Any]:
    """Executes a small run; returns its results and its folder."""
    from prunus.runs import execute

    def perform(command: str, /, **given: Any) -> Any:
        settings, task = settle(command, **given)
        return execute(settings, task), settings.folder

    return perform
